"""Sends of every form arrive as they were meant, on every broker."""

from __future__ import annotations

import os

import pytest

from reconciler.errors import BrokerRefused, InvalidValue, ReconcilerError, TopicNotFound
from reconciler.rocketmq.client.sending import Sender, SendStatus
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.message import MAXIMUM_BODY_BYTES, Message
from reconciler.rocketmq.wire.message_id import decode_offset_message_id
from tests.brokers.batches import send_batch
from tests.conformance.steps import GROUP, Steps, new_steps
from tests.conformance.targets import Target

TEXT = "grün, 绿色, \U0001f33f"


def sender(steps: Steps, *, uses_v1: bool = False) -> Sender:
    instance = steps.instance
    return Sender(
        instance.client,
        instance.routes,
        instance.families,
        group=GROUP,
        unique_keys=instance.unique_keys,
        uses_v1=uses_v1,
    )


@pytest.mark.parametrize("uses_v1", [True, False], ids=["v1", "v2"])
def test_a_message_is_stored_as_it_was_sent(steps: Steps, uses_v1: bool) -> None:
    topic = steps.target.new_topic("send")
    message = Message(
        topic=topic,
        body=b"\x00\xff binary",
        tags="TagA",
        keys=("order-1", "customer-9"),
        properties={"colour": TEXT, "empty-ish": " "},
        flag=-7,
    )
    sent = sender(steps, uses_v1=uses_v1).send(message, queue=steps.queue(topic, 2))
    assert (sent.status, sent.topic, sent.queue_id, sent.queue_offset) == (SendStatus.SEND_OK, topic, 2, 0)
    assert sent.broker_version == steps.instance.families.facts(steps.target.broker).version
    (record,) = steps.until_delivered(topic, 1, queue=2)
    assert record.body == message.body
    assert (record.tags, record.flag, record.topic) == ("TagA", -7, topic)
    assert set(message.keys) <= set(record.keys)
    assert record.properties["colour"] == TEXT
    assert record.unique_key == sent.unique_key
    assert record.physical_offset == sent.commit_log_offset
    assert record.offset_message_id == sent.offset_message_id
    (by_id,) = steps.lookups.at_offset(
        topic, steps.target.broker_name, sent.commit_log_offset, sent.unique_key
    )().records
    assert (by_id.body, by_id.queue_offset) == (record.body, record.queue_offset)


def test_a_unique_key_given_by_the_caller_is_kept(steps: Steps) -> None:
    """Republishing keeps the key of the lost message."""
    topic = steps.target.new_topic("key")
    key = os.urandom(16).hex().upper()
    sent = sender(steps).send(Message(topic=topic, body=b"again", unique_key=key), queue=steps.queue(topic))
    assert sent.unique_key == key
    assert steps.until_delivered(topic, 1)[0].unique_key == key
    steps.pass_index()
    assert [record.body for record in steps.query(topic, key)] == [b"again"]


def test_large_bodies_travel_compressed_and_come_back_plain(steps: Steps) -> None:
    topic = steps.target.new_topic("large")
    wordy, noise = b"wordy " * 100_000, os.urandom(400_000)
    for body in (wordy, noise):
        steps.send(topic, body)
    first, second = steps.until_delivered(topic, 2)
    assert len(first.body) < len(wordy) / 10
    assert first.plain_body() == wordy
    assert second.plain_body() == second.body == noise


def test_a_batch_is_stored_in_order_in_one_queue(steps: Steps, target: Target) -> None:
    topic = target.new_topic("batch")
    keys = [os.urandom(16).hex().upper() for _ in range(10)]
    messages = [Message(topic=topic, body=key.encode(), unique_key=key, keys=("k",), tags="B") for key in keys]
    if not target.expect.has_batch_send:
        with new_steps(target, request_timeout_seconds=1.0) as impatient, pytest.raises(ReconcilerError):
            send_batch(impatient.instance, messages, queue=steps.queue(topic))
        return
    answer = send_batch(steps.instance, messages, queue=steps.queue(topic, 1))
    records = steps.until_delivered(topic, 10, queue=1)
    assert [record.body for record in records] == [message.body for message in messages]
    assert [record.unique_key for record in records] == keys
    assert [record.queue_offset for record in records] == list(range(10))
    places = [decode_offset_message_id(one).commit_log_offset for one in answer.fields["msgId"].split(",")]
    assert [record.physical_offset for record in records] == places
    assert {record.tags for record in records} == {"B"}


def test_messages_without_a_queue_go_round_all_queues(steps: Steps) -> None:
    topic = steps.target.new_topic("round")
    sending = sender(steps)
    used = {sending.send(Message(topic=topic, body=b"x")).queue_id for _ in range(8)}
    assert used == {0, 1, 2, 3}


def test_an_unknown_topic_has_no_route(steps: Steps) -> None:
    with pytest.raises(TopicNotFound):
        sender(steps).send(Message(topic="no_such_topic", body=b"x"))


def test_a_delayed_message_arrives_after_its_delay(steps: Steps) -> None:
    topic = steps.target.new_topic("delay")
    message = Message(topic=topic, body=b"later", delay_level=1)
    sent = sender(steps).send(message, queue=steps.queue(topic))
    (record,) = steps.until_delivered(topic, 1, within_seconds=60)
    assert (record.body, record.unique_key) == (b"later", sent.unique_key)
    assert record.store_timestamp_ms - record.born_timestamp_ms >= 800  # level 1 is one second here


def test_a_body_larger_than_the_broker_takes_is_refused(steps: Steps) -> None:
    """512 KiB on 3.2.6; later brokers take what the client takes: 4 MiB."""
    topic = steps.target.new_topic("huge")
    maximum = steps.expect.max_message_bytes
    noise = os.urandom(maximum + 1)
    if maximum < MAXIMUM_BODY_BYTES:
        with pytest.raises(BrokerRefused) as refused:
            steps.send(topic, noise)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    else:
        with pytest.raises(InvalidValue):
            steps.send(topic, noise)
        steps.send(topic, noise[: maximum - 1_024])
        assert len(steps.until_delivered(topic, 1)[0].body) == maximum - 1_024
