"""What waits unread in a topic is asked from every broker that may hold some of it; one that is silent is named."""

from __future__ import annotations

import pytest

from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import ReconcilerError, TopicNotFound
from reconciler.evidence.queue_ends import QueueEnd, QueueEnds
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.message import Message
from tests.integration.rocketmq.conftest import new_topic
from tests.polling import eventually

#: PermName.PERM_WRITE.
WRITE_ONLY = 2


def test_queue_tells_its_ends_and_since_when_something_waits(broker: EmbeddedBroker, instance: ClientInstance) -> None:
    topic = new_topic(instance, broker.address, queues=2)
    ends = QueueEnds(instance.client, instance.routes)
    queue = MessageQueue(topic=topic, broker_name=instance.routes.read_queues(topic)[0].broker_name, queue_id=1)
    sender = instance.sender("SENDERS")
    for body in (b"first", b"second"):
        sender.send(Message(topic=topic, body=body, tags=body.decode()), queue=queue)
    found, silent = ends.of_topic(topic, {})
    assert [(end.queue.queue_id, end.begin, end.end) for end in found] == [(0, 0, 0), (1, 0, 2)]
    assert silent == {}
    first, second = (message.store_timestamp_ms for message in broker.stored(topic))
    assert [ends.waiting_since_ms(found[1], offset) for offset in (0, 1)] == [first, second]
    assert ends.waiting_since_ms(found[0], 0) is None
    tagged = [ends.waiting_since_ms(found[1], 0, tag=tag) for tag in ("first", "second", "third")]
    assert tagged == [first, second, None]


def test_queues_that_may_be_written_and_not_read_are_no_empty_topic(
    broker: EmbeddedBroker, instance: ClientInstance
) -> None:
    topic = new_topic(instance, broker.address, queues=1)
    Admin(instance.client).create_topic(broker.address, topic, queues=1, permission=WRITE_ONLY)
    eventually(lambda: not instance.routes.refresh(topic).readable_queues, within_seconds=20)
    instance.sender("SENDERS").send(Message(topic=topic, body=b"nobody reads it"))
    found, silent = QueueEnds(instance.client, instance.routes).of_topic(topic, {})
    assert [(end.begin, end.end) for end in found] == [(0, 1)]
    assert silent == {}


def test_a_queue_that_was_taken_away_has_its_end_where_something_was_read_of_it(
    broker: EmbeddedBroker, instance: ClientInstance
) -> None:
    topic = new_topic(instance, broker.address, queues=2)
    (name,) = {queue.broker_name for queue in instance.routes.read_queues(topic)}
    gone = MessageQueue(topic=topic, broker_name=name, queue_id=1)
    instance.sender("SENDERS").send(Message(topic=topic, body=b"unread"), queue=gone)
    Admin(instance.client).create_topic(broker.address, topic, queues=1)
    eventually(lambda: len(instance.routes.refresh(topic).readable_queues) == 1, within_seconds=20)
    ends = QueueEnds(instance.client, instance.routes)
    found, _ = ends.of_topic(topic, {name: [0, 1]})
    assert [(end.queue.queue_id, end.end, end.is_taken_away) for end in found] == [(0, 0, False), (1, 1, True)]
    with pytest.raises(ReconcilerError, match="readQueueNums"):
        ends.waiting_since_ms(found[1], 0)
    unknown, _ = ends.of_topic(topic, {})
    assert [end.queue.queue_id for end in unknown] == [0]


def test_broker_that_left_with_what_was_read_of_it_is_not_forgotten(
    broker: EmbeddedBroker, instance: ClientInstance
) -> None:
    topic = new_topic(instance, broker.address, queues=1)
    _, silent = QueueEnds(instance.client, instance.routes).of_topic(topic, {"gone": [0]})
    assert list(silent) == ["gone"]
    assert "rocketmq.retired_brokers" in silent["gone"]


def test_broker_that_refuses_is_silent_and_says_what_it_wants(broker: EmbeddedBroker, instance: ClientInstance) -> None:
    topic = new_topic(instance, broker.address, queues=1)
    broker.faults.refuse()
    found, silent = QueueEnds(instance.client, instance.routes).of_topic(topic, {})
    empty: list[QueueEnd] = []
    assert found == empty
    assert [text.partition(":")[0] for text in silent.values()] == ["wants authentication"]


def test_topic_that_no_broker_has_is_no_empty_topic(instance: ClientInstance) -> None:
    with pytest.raises(TopicNotFound):
        QueueEnds(instance.client, instance.routes).of_topic("NO_SUCH_TOPIC", {})
