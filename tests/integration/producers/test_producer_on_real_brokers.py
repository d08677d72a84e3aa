"""The producer against real RocketMQ: delivered copy, digest, announcement and check-back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkback_producers import AnnouncementRoute, Message, Outcome, TransactionalProducer, open_producer
from checkback_producers.errors import NotCommitted
from reconciler.evidence.lookup import Lookups
from reconciler.policy.evidence import EndOutcome, StoredMessage
from reconciler.rocketmq.client.client_instance import ClientInstance
from tests.polling import eventually
from tests.services.fixtures import SharedClusters
from tests.services.patient_instance import TIMEOUT_SECONDS, patient_instance
from tests.services.rocketmq import marks
from tests.services.topics import create_topic, topic_name
from tests.unit.producers.world import World

VERSIONS = ["3.2.6", "4.2.0", "4.9.7", "5.3.3"]
QUEUES = 4


@dataclass
class Deployment:
    """A producer of its own group and topics on a shared cluster."""

    version: str
    topic: str
    world: World
    instance: ClientInstance
    producer: TransactionalProducer

    def message(self) -> Message:
        return Message(topic=self.topic, body=b"order" * 2_000, tags="paid", keys=("o-1",), properties={"a": "ü"})

    def copies(self, unique_key: str) -> list[StoredMessage]:
        """What consumers get."""
        lookups = Lookups(self.instance.client, self.instance.routes, self.instance.families)
        return list(lookups.committed_copies(self.topic, unique_key)().records)


@pytest.fixture(params=[pytest.param(version, marks=marks(version)) for version in VERSIONS])
def deployment(request: pytest.FixtureRequest, shared_clusters: SharedClusters, tmp_path: Path) -> Iterator[Deployment]:
    """Each version that CI runs."""
    cluster = shared_clusters.get(request.param)
    name_server_port = int(cluster.name_servers.rpartition(":")[2])
    topic, unique_key_topic = (
        create_topic(cluster.broker().port, topic_name(prefix), queues=QUEUES, name_server_port=name_server_port)
        for prefix in ("producing", "announcing")
    )
    world = World(f"sqlite:///{tmp_path}/orders.db")
    route = AnnouncementRoute(environment="test", unique_key_topic=unique_key_topic, queues=QUEUES)
    with patient_instance(cluster.name_servers) as instance:
        producer = open_producer(
            group=f"{topic}-group", environment="test", instance=instance, outbox_url=world.url, announcements=route,
            announce_every_seconds=None, send_timeout_seconds=TIMEOUT_SECONDS, end_timeout_seconds=TIMEOUT_SECONDS,
        )  # fmt: skip
        with producer:
            yield Deployment(version=request.param, topic=topic, world=world, instance=instance, producer=producer)
    world.close()


def test_a_commit_is_delivered_once_with_the_digest_that_was_recorded(deployment: Deployment) -> None:
    world = deployment.world
    with deployment.producer.transaction(deployment.message()) as tx, world.engine.begin() as connection:
        tx.record(connection)
    assert tx.end_answer is not None
    assert (tx.outcome, tx.end_answer.outcome) == (Outcome.COMMIT, EndOutcome.DONE)
    assert world.state(tx.unique_key) == "ANNOUNCED"
    (copy,) = eventually(lambda: deployment.copies(tx.unique_key), within_seconds=60)
    row = world.row(tx.unique_key)
    assert copy.content_digest == row.content_digest
    assert copy.prepared_transaction_offset == row.half_commit_log_offset
    assert copy.broker == row.half_broker


def test_a_rollback_is_delivered_to_nobody(deployment: Deployment) -> None:
    world = deployment.world
    with (
        pytest.raises(NotCommitted),
        deployment.producer.transaction(deployment.message()) as tx,
        world.engine.connect() as connection,
    ):
        tx.record(connection)
    assert tx.end_answer is not None
    assert tx.end_answer.outcome is EndOutcome.DONE
    assert world.state(tx.unique_key) == "ROLLED_BACK"


def test_an_outer_transaction_is_finished_by_the_brokers_check_back(deployment: Deployment) -> None:
    if deployment.version in {"3.2.6", "4.2.0"}:
        assert deployment.producer._halves.has_check_back() is False
        return
    with deployment.world.engine.begin() as connection, deployment.producer.transaction(deployment.message()) as tx:
        tx.record(connection)
    assert tx.outcome is Outcome.UNKNOWN
    copies = eventually(lambda: deployment.copies(tx.unique_key), within_seconds=60)
    assert {copy.content_digest for copy in copies} == {deployment.world.row(tx.unique_key).content_digest}
