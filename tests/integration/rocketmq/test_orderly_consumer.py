"""Orderly consumption: queue order, one batch at a time, under the broker's lock."""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.message import ConsumedMessage
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.push_consumer import ConsumeStatus, ReceivedMessage
from reconciler.rocketmq.wire.codes import dead_letter_topic
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox
from tests.integration.rocketmq.conftest import Collector, Consumers, held_queues, send_to, stored_offsets
from tests.polling import eventually


def bodies(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:03}" for number in range(count)]


def test_a_failing_message_holds_its_queue_back_and_no_other(
    instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    first, second, *_ = instance.routes.read_queues(topic)
    send_to(instance, first, bodies("a", 3))
    send_to(instance, second, bodies("b", 3))
    healed = threading.Event()

    def decide(message: ReceivedMessage) -> ConsumeStatus | None:
        fails = message.body == b"a-001" and not healed.is_set()
        return ConsumeStatus.RECONSUME_LATER if fails else ConsumeStatus.CONSUME_SUCCESS

    got = Collector(decide)
    consumers.start("G", topic, got, orderly=True, max_reconsume_times=-1)
    eventually(lambda: got.bodies.count("a-001") >= 3 and "b-002" in got.bodies, within_seconds=60)
    assert "a-002" not in got.bodies
    eventually(lambda: stored_offsets(instance, "G", topic)[:2] == [1, 3], within_seconds=60)
    healed.set()
    eventually(lambda: got.bodies[-1] == "a-002", within_seconds=60)
    of_first = [m for m in got.messages if m.body == b"a-001"]
    assert [m.reconsume_times for m in of_first] == list(range(len(of_first)))


def test_a_message_that_fails_too_often_goes_to_the_dead_letters_and_the_queue_moves_on(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    queue = instance.routes.read_queues(topic)[0]
    send_to(instance, queue, ["poison", "next"])
    got = Collector(lambda m: ConsumeStatus.RECONSUME_LATER if m.body == b"poison" else ConsumeStatus.CONSUME_SUCCESS)
    consumers.start("G", topic, got, orderly=True, max_reconsume_times=2)
    eventually(lambda: got.bodies == ["poison"] * 3 + ["next"], within_seconds=60)
    assert [message.body for message in broker.stored(dead_letter_topic("G"))] == [b"poison"]


def test_a_message_whose_handler_committed_halfway_holds_its_queue_no_longer_than_one_whose_handler_fails(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers, tmp_path: Path
) -> None:
    """Its deliveries are refused, without the handler, as often as those of the other one; then the queue goes on."""
    schema.upgrade(url := f"sqlite:///{tmp_path / 'inbox.db'}", "inbox")
    engine = open_engine(url)
    halfway_queue, failing_queue, *_ = instance.routes.read_queues(topic)
    send_to(instance, halfway_queue, ["halfway", "behind halfway"])
    send_to(instance, failing_queue, ["failing", "behind failing"])
    ran: list[str] = []

    def handler(received: ConsumedMessage, connection: sa.Connection) -> None:
        ran.append(received.body.decode())
        if received.body == b"halfway":
            connection.exec_driver_sql("COMMIT")
        if received.body == b"failing":
            raise ValueError("not today")

    bill = transactional_handler(engine, group="G")(handler)
    got = Collector(lambda message: bill.listener([message]))  # type: ignore[arg-type,return-value]  # of one message
    consumers.start("G", topic, got, orderly=True, max_reconsume_times=2)
    eventually(lambda: {"behind halfway", "behind failing"} <= set(ran), within_seconds=60)
    for poison in ("halfway", "failing"):
        of_queue = [body for body in got.bodies if body.endswith(poison)]
        assert of_queue == [poison] * 3 + [f"behind {poison}"]
    assert (ran.count("halfway"), ran.count("failing"), bill.counts.incomplete) == (1, 3, 2)
    dead = {message.body for message in broker.stored(dead_letter_topic("G"))}
    assert dead == {b"halfway", b"failing"}
    with engine.connect() as connection:
        marks = connection.execute(sa.select(inbox.c.incomplete)).scalars().all()
    assert sorted(mark is None for mark in marks) == [False, True, True]
    engine.dispose()


def test_a_queue_changes_hands_only_when_its_lock_is_free_and_order_is_kept(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    queues = instance.routes.read_queues(topic)
    busy: dict[int, int] = {}
    overlaps: list[int] = []
    lock = threading.Lock()
    leave = threading.Event()

    def decide(message: ReceivedMessage) -> ConsumeStatus:
        with lock:
            busy[message.queue_id] = busy.get(message.queue_id, 0) + 1
            if busy[message.queue_id] > 1:
                overlaps.append(message.queue_id)
        leave.wait(0.002)
        with lock:
            busy[message.queue_id] -= 1
        return ConsumeStatus.CONSUME_SUCCESS

    for queue in queues:
        send_to(instance, queue, bodies(f"q{queue.queue_id}", 100))
    first_got, second_got = Collector(decide), Collector(decide)
    first = consumers.start("G", topic, first_got, orderly=True)
    eventually(lambda: len(first_got.messages) > 20, within_seconds=60)
    second = consumers.start("G", topic, second_got, orderly=True)
    eventually(lambda: len(held_queues(second, topic)) == 2, within_seconds=60)
    eventually(lambda: stored_offsets(instance, "G", topic) == [100] * 4, within_seconds=60)
    assert not overlaps
    for queue in queues:
        seen = [m for m in first_got.messages + second_got.messages if m.queue_id == queue.queue_id]
        assert sorted({m.body.decode() for m in seen}) == bodies(f"q{queue.queue_id}", 100)
    assert first.shutdown()
    eventually(lambda: len(held_queues(second, topic)) == 4, within_seconds=60)
