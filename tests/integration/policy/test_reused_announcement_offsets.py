"""A broker gives offsets of the unique-key topic a second time: payments that were announced there are found.

The client, the announcement consumer and the embedded broker speak over TCP; Redis and ledger are in memory. Real
brokers: tests/brokers/test_restored_store.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from reconciler.policy.ports.announcing import AnnouncementQueue
from tests.brokers.announcing_deployment import KEY_TOPIC, Deployment, a_group_is_believed_again
from tests.embedded_cluster import EmbeddedCluster
from tests.services.patient_instance import patient_instance


@dataclass(frozen=True)
class Embedded:
    """Two embedded brokers, whose faults tests choose."""

    cluster: EmbeddedCluster
    deployment: Deployment


@pytest.fixture(params=["5.x", "4.9", "3.2.6"])
def embedded(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    with (
        EmbeddedCluster(("broker-a", "broker-b"), family=request.param) as cluster,
        patient_instance(cluster.name_server.address) as instance,
    ):
        yield Embedded(cluster, Deployment({name: one.address for name, one in cluster.brokers.items()}, instance))


def test_announcements_behind_a_lost_tail_are_read_and_the_other_broker_is_left_alone(embedded: Embedded) -> None:
    deployment, first, second = embedded.deployment, "broker-a", "broker-b"
    known = [*deployment.announce(first, 5), *deployment.announce(second, 5)]
    assert deployment.read(first) | deployment.read(second) == set(known)
    embedded.cluster.brokers[first].faults.lose_tail(4)
    lost = [*deployment.announce(first, 2), *deployment.announce(first, 3, topic="REFUNDS")]
    lost += [*deployment.announce(first, 2), *deployment.announce(second, 1)]
    own = {*lost[:2], *lost[5:]}
    deployment.read(first)
    assert own <= deployment.read(second)
    assert {event.queue.broker for event in deployment.reused()} == {first}
    assert len(deployment.reused()) == 1


def test_a_unique_key_topic_that_was_created_again_is_read_from_its_beginning(embedded: Embedded) -> None:
    deployment, first = embedded.deployment, "broker-a"
    deployment.announce(first, 5)
    deployment.read(first)
    deployment.create_topic_again(first)
    keys = deployment.announce(first, 8)
    assert set(keys) <= deployment.read(first)
    assert deployment.reused()[0].first_offset == 0
    keys = deployment.announce(first, 1)
    assert set(keys) <= deployment.read(first)
    assert len(deployment.reused()) == 1


def test_another_consumer_goes_on_with_what_the_first_one_knew(embedded: Embedded) -> None:
    deployment, first = embedded.deployment, "broker-a"
    deployment.announce(first, 5)
    deployment.read(first)
    deployment.step.release(AnnouncementQueue(unique_key_topic=KEY_TOPIC, broker=first, queue_id=0))
    embedded.cluster.brokers[first].faults.lose_tail(5)
    keys = deployment.announce(first, 9)
    deployment.step = deployment.consumer("two")
    assert set(keys) <= deployment.read(first)


def test_a_groups_offset_in_a_topic_that_was_created_again_proves_what_came_after_it_came_down(
    embedded: Embedded,
) -> None:
    a_group_is_believed_again(embedded.deployment, "broker-a")
