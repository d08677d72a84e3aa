"""Halves over the package (its C functions stood in for), announcements and questions over the remoting client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checkback_producers.announcer import AnnouncementRoute
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.contract.announcement import decode_announcement
from reconciler.contract.unique_key import shard_of
from reconciler.errors import ConfigurationError
from reconciler.rocketmq.client.client_instance import ClientInstance
from tests.native.orders import TOPIC, Orders, order
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.topics import create_topic, topic_name

QUEUES = 4


@pytest.fixture(params=["5.x", "4.2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(family=request.param) as started:
        yield started


@pytest.fixture
def instance(broker: EmbeddedBroker) -> Iterator[ClientInstance]:
    with ClientInstance(broker.name_servers) as opened:
        yield opened


def test_announcements_over_the_remoting_client_lie_in_their_queue(
    orders: Orders, broker: EmbeddedBroker, instance: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(broker.port, topic_name("UNIQUE"), queues=QUEUES, name_server_port=broker.port)
    route = AnnouncementRoute(environment="test", unique_key_topic=topic, queues=QUEUES)
    producer = orders.producer(instance=instance, announcements=route)
    # The stand-in's heartbeats do not reach this broker: that is seen, not assumed.
    assert "could not be registered for check-back (not at 127.0.0.1" in caplog.text
    tx = producer.send(order(), orders.place)
    assert tx.is_announced
    source = RemotingAnnouncementSource(instance.client, instance.routes)
    found = [
        (queue.queue_id, key.unique_key)
        for queue in source.queues(topic)
        for message in source.pull(queue, tag=TOPIC, offset=0, max_messages=8).messages
        for key in decode_announcement(message.body).keys
    ]
    assert found == [(shard_of(tx.unique_key, QUEUES), tx.unique_key)]
    assert orders.announced() == []


def test_completion_by_check_is_refused_where_nobody_checks(orders: Orders, instance: ClientInstance) -> None:
    asks_back = instance.families.facts(next(iter(instance.cluster_addresses()))).has_check_back
    if asks_back:
        orders.producer(instance=instance, completion="check")
        return
    with pytest.raises(ConfigurationError, match="never ask back"):
        orders.producer(instance=instance, completion="check")
