"""A real broker whose store is put back, and whose unique-key topic is created again: announcements at offsets that
were read before are read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.announcing_deployment import Deployment, a_group_is_believed_again
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_instance
from tests.services.rocketmq import RocketMQCluster, marks

VERSIONS = [
    pytest.param("4.9.7", marks=marks("4.9.7")),
    pytest.param("5.3.3", marks=[*marks("5.3.3"), pytest.mark.nightly]),
]
BROKER = "broker-1"


@pytest.fixture(params=VERSIONS)
def cluster(request: pytest.FixtureRequest, new_rocketmq_cluster: ClusterFactory) -> RocketMQCluster:
    # Without a timer wheel 5.3.3 answers DELETE_TOPIC_IN_BROKER with a NullPointerException, its work half done.
    return new_rocketmq_cluster(request.param, brokers=1, properties={"timerWheelEnable": "true"})


@pytest.fixture
def deployment(cluster: RocketMQCluster) -> Iterator[Deployment]:
    with patient_instance(cluster.name_servers) as instance:
        yield Deployment({BROKER: cluster.broker(BROKER).address}, instance)


def test_after_its_store_was_put_back_and_its_topic_created_again_no_announcement_is_passed_over(
    cluster: RocketMQCluster, deployment: Deployment, tmp_path: Path
) -> None:
    broker = cluster.broker(BROKER)
    known = deployment.announce(BROKER, 6)
    assert deployment.read(BROKER) == set(known)
    broker.stop()
    shutil.copytree(broker.folder / "store", tmp_path / "saved")
    broker.start()
    deployment.announce(BROKER, 4)
    deployment.read(BROKER)
    assert deployment.reused() == []
    broker.stop()
    shutil.rmtree(broker.folder / "store")
    shutil.copytree(tmp_path / "saved", broker.folder / "store")
    broker.start()
    keys = deployment.announce(BROKER, 7)
    assert set(keys) <= deployment.read(BROKER)
    (told,) = deployment.reused()
    assert told.last_offset == 10
    assert (told.first_offset or 0) <= 6

    deployment.create_topic_again(BROKER)
    keys = deployment.announce(BROKER, 15)
    assert set(keys) <= deployment.read(BROKER)
    assert [event.first_offset for event in deployment.reused()][1:] == [0]


def test_a_groups_offset_in_a_topic_that_was_created_again_proves_what_came_after_it_came_down(
    deployment: Deployment,
) -> None:
    a_group_is_believed_again(deployment, BROKER)
