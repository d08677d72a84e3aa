"""Two masters behind one of two name servers: what a dead broker costs, and what it must not cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.errors import BrokerUnavailable, RequestTimeout
from reconciler.evidence.lookup import Lookups
from reconciler.policy.evidence import Presence
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.name_servers import MessageQueue
from reconciler.rocketmq.wire.message import Message
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_client
from tests.services.ports import free_port
from tests.services.rocketmq import RocketMQCluster, marks
from tests.services.topics import create_topic, topic_name

VERSION = "4.9.7"

pytestmark = marks(VERSION)


@pytest.fixture
def cluster(new_rocketmq_cluster: ClusterFactory) -> RocketMQCluster:
    return new_rocketmq_cluster(VERSION, brokers=2)


@pytest.fixture
def instance(cluster: RocketMQCluster) -> Iterator[ClientInstance]:
    """The first name server of the list is not there."""
    servers = f"127.0.0.1:{free_port()};{cluster.name_servers}"
    with (
        patient_client() as client,
        ClientInstance(servers, client=client) as opened,
    ):
        yield opened


def test_sends_go_on_and_look_ups_say_unknown_until_the_broker_is_back(
    cluster: RocketMQCluster, instance: ClientInstance
) -> None:
    topic = topic_name("two")
    for broker in cluster.brokers.values():
        create_topic(broker.port, topic, queues=2, name_server_port=cluster.name_server.port)
    sender = instance.sender("PG_two")
    lookups = Lookups(instance.client, instance.routes, instance.families)
    eventually(lambda: len(instance.routes.refresh(topic).masters) == 2, within_seconds=60, message="both brokers")
    on_first = MessageQueue(topic=topic, broker_name="broker-1", queue_id=0)
    there = sender.send(Message(topic=topic, body=b"on broker-1"), queue=on_first)
    eventually(lambda: lookups.find(topic, there.unique_key)().is_found, within_seconds=60)

    cluster.broker("broker-1").kill()
    for number in range(6):  # whatever queue comes first, the other broker takes it
        sent = sender.send(Message(topic=topic, body=f"{number}".encode()))
        assert sent.broker_name == "broker-2"
    with pytest.raises((BrokerUnavailable, RequestTimeout)):
        sender.send(Message(topic=topic, body=b"x"), queue=on_first)
    lookup = lookups.find(topic, there.unique_key)()
    assert lookup.presence is Presence.UNKNOWN
    assert {answer.witness: answer.presence for answer in lookup.answers} == {
        "broker-1": Presence.UNKNOWN,
        "broker-2": Presence.ABSENT,
    }
    # One that has it is enough; its index is written after the send was acknowledged.
    eventually(lambda: lookups.find(topic, sent.unique_key)().presence is Presence.FOUND, within_seconds=60)

    cluster.broker("broker-1").start()
    found = eventually(
        lambda: answer if (answer := lookups.find(topic, there.unique_key)()).is_found else None,
        within_seconds=60,
        message="broker-1 to answer again",
    )
    assert found.records[0].body == b"on broker-1"
    absent = lookups.find(topic, "0" * 32)()
    assert absent.presence is Presence.ABSENT
    assert len(absent.answers) == 2
