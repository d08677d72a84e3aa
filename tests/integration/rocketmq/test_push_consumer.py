"""A push consumer against the embedded broker: nothing lost, nothing committed that was not consumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import UsageError
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer import queue_offsets
from reconciler.rocketmq.consumer.process_queue import CacheLimits
from reconciler.rocketmq.consumer.push_consumer import ConsumeFrom, ConsumeStatus, PushConsumer, ReceivedMessage
from reconciler.rocketmq.producer.ending import EndStatus
from reconciler.rocketmq.producer.transaction_producer import LocalTransactionState, TransactionMQProducer
from reconciler.rocketmq.wire.codes import HALF_TOPIC, RequestCode, SystemFlag, dead_letter_topic, retry_topic
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from tests.integration.rocketmq.conftest import (
    Collector,
    Consumers,
    held_queues,
    new_topic,
    quick_settings,
    send,
    send_to,
    sent,
    stored_offsets,
    unique_name,
)
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.services.ports import free_port
from tests.unit.rocketmq.missing_packages import without_package


@pytest.fixture
def patient_last_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that answers late is no broker that is away."""
    monkeypatch.setattr(queue_offsets, "LAST_COMMIT_SECONDS", 60.0)


def numbered(count: int) -> list[str]:
    return [f"m{number:04}" for number in range(count)]


@pytest.mark.usefixtures("patient_last_commit")
def test_empty_queues_have_their_offset_stored_while_running_and_at_shutdown(
    instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    running = consumers.start("G", topic, Collector())
    eventually(lambda: stored_offsets(instance, "G", topic) == [0] * 4, within_seconds=60)
    assert running.shutdown()
    late = consumers.start("H", topic, Collector(), commit_seconds=3_600)
    eventually(lambda: len(held_queues(late, topic)) == 4, within_seconds=60)
    assert stored_offsets(instance, "H", topic) == [0, None, None, None], "the first one when it is taken over"
    assert late.shutdown()
    assert stored_offsets(instance, "H", topic) == [0] * 4


class Held:
    """A listener that ends when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, _messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        self.begun.set()
        self.go_on.wait(300)
        return ConsumeStatus.CONSUME_SUCCESS


@pytest.mark.usefixtures("patient_last_commit")
def test_shutdown_waits_for_running_listeners_and_commits_them(
    instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    slow = Held()
    send(instance, topic, ["one"])
    consumer = consumers.start("G", topic, slow, commit_seconds=3_600)
    assert slow.begun.wait(60)
    threading.Timer(0.2, slow.go_on.set).start()
    assert consumer.shutdown() is True
    assert sum(offset or 0 for offset in stored_offsets(instance, "G", topic)) == 1


@pytest.mark.usefixtures("patient_last_commit")
def test_a_listener_that_outlives_the_bound_is_not_committed(
    instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    stuck = Held()
    send(instance, topic, ["one"])
    consumer = consumers.start("G", topic, stuck, shutdown_seconds=0.1)
    assert stuck.begun.wait(60)
    eventually(lambda: len(held_queues(consumer, topic)) == 4, within_seconds=60)  # the first one is pulled at once
    assert consumer.shutdown() is False
    assert stored_offsets(instance, "G", topic) == [0] * 4
    stuck.go_on.set()
    got = Collector()
    consumers.start("G", topic, got)
    eventually(lambda: got.bodies == ["one"], within_seconds=60)


def test_a_message_whose_listener_says_nothing_comes_again_from_the_retry_topic_which_is_committed(
    instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    (key,) = send(instance, topic, ["again"])
    got = Collector(lambda message: ConsumeStatus.CONSUME_SUCCESS if message.reconsume_times else None)
    consumers.start("G", topic, got)
    eventually(lambda: len(got.messages) == 2, within_seconds=60)
    first, second = got.messages
    assert (second.topic, second.stored_topic) == (topic, retry_topic("G"))
    assert (first.unique_key, second.unique_key) == (key, key)
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    eventually(lambda: stored_offsets(instance, "G", retry_topic("G")) == [1], within_seconds=60)


def test_a_broker_that_refuses_send_backs_gets_a_copy_in_the_retry_topic(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    broker.faults.busy(RequestCode.CONSUMER_SEND_MSG_BACK, count=-1)
    instance.sender("SENDERS").send(
        Message(topic=topic, body=b"again", tags="t", keys=("k",), properties={"colour": "red"})
    )
    got = Collector(lambda m: ConsumeStatus.CONSUME_SUCCESS if m.reconsume_times else ConsumeStatus.RECONSUME_LATER)
    consumers.start("G", topic, got)
    eventually(lambda: len(got.messages) == 2, within_seconds=60)
    first, second = got.messages
    assert second.stored_topic == retry_topic("G")
    for message in (first, second):
        assert (message.topic, message.body, message.tags, message.keys) == (topic, b"again", "t", "k")
        assert message.properties["colour"] == "red"
    assert first.unique_key == second.unique_key
    eventually(lambda: sum(o or 0 for o in stored_offsets(instance, "G", topic)) == 1, within_seconds=60)


def test_a_copy_of_a_committed_transactional_message_does_not_become_a_half(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    producer = TransactionMQProducer("PG", None, instance=instance).start(topic)
    half = producer.send_half(Message(topic=topic, body=b"paid"))
    assert producer.end(half, LocalTransactionState.COMMIT).status is EndStatus.DONE
    halves = len(broker.stored(HALF_TOPIC))
    broker.faults.busy(RequestCode.CONSUMER_SEND_MSG_BACK, count=-1)
    got = Collector(lambda m: ConsumeStatus.CONSUME_SUCCESS if m.reconsume_times else ConsumeStatus.RECONSUME_LATER)
    consumers.start("G", topic, got)
    eventually(lambda: len(got.messages) == 2, within_seconds=60)
    assert got.messages[0].properties["TRAN_MSG"] == "true"
    assert got.messages[1].stored_topic == retry_topic("G")
    assert {message.unique_key for message in got.messages} == {half.unique_key}
    assert len(broker.stored(HALF_TOPIC)) == halves
    producer.shutdown()


ZSTD, LZ4 = SystemFlag.COMPRESSION_ZSTD, SystemFlag.COMPRESSION_LZ4


def send_packed(instance: ClientInstance, broker: EmbeddedBroker, topic: str, kind: int, body: bytes) -> None:
    """Sends a body as if it were packed, into queue 0."""
    fields = {
        "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": str(SystemFlag.COMPRESSED | kind), "g": "1",
        "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    command = Command(code=RequestCode.SEND_MESSAGE_V2, fields=fields, body=body)
    assert instance.client.request(broker.address, command).code == 0


@pytest.mark.parametrize(
    ("kind", "module", "body"),
    [
        (0, None, b"no zlib stream"),
        (ZSTD, "zstandard", zstandard.compress(b"order")),
        (LZ4, "lz4", lz4.frame.compress(b"order")),
    ],
    ids=["damaged", "zstd without its package", "lz4 without its package"],
)
def test_a_body_that_cannot_be_read_goes_to_the_dead_letters_and_blocks_nothing(
    kind: int,
    module: str | None,
    body: bytes,
    broker: EmbeddedBroker,
    instance: ClientInstance,
    topic: str,
    consumers: Consumers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if module is not None:
        without_package(monkeypatch, module)
    queue = instance.routes.read_queues(topic)[0]
    send_packed(instance, broker, topic, kind, body)
    send_to(instance, queue, ["good"])
    got = Collector()
    consumers.start("G", topic, got, max_reconsume_times=1)
    eventually(lambda: got.bodies == ["good"], within_seconds=60)
    eventually(lambda: len(broker.stored(dead_letter_topic("G"))) == 1, within_seconds=60)
    eventually(lambda: stored_offsets(instance, "G", topic)[0] == 2, within_seconds=60)
    assert got.bodies == ["good"]
    named = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    if module is None:
        assert len(named) == 2  # first delivery and retry
    else:
        (line,) = named
        assert f"pip install {module}" in line


def test_another_member_that_has_the_package_takes_what_came_back(
    broker: EmbeddedBroker,
    instance: ClientInstance,
    topic: str,
    consumers: Consumers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as there:
        without_package(there, "zstandard")
        send_packed(instance, broker, topic, ZSTD, zstandard.compress(b"order"))
        lacking = consumers.start("G", topic, Collector(), max_reconsume_times=1_000)
        eventually(lambda: stored_offsets(instance, "G", topic)[0] == 1, within_seconds=60)
        lacking.shutdown()
    got = Collector()
    consumers.start("G", topic, got)
    eventually(lambda: got.bodies == ["order"], within_seconds=60)


def test_a_message_that_nobody_takes_back_comes_again_here_and_holds_the_commit(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    send(instance, topic, ["again"])
    fails = threading.Event()
    got = Collector(lambda _m: ConsumeStatus.RECONSUME_LATER if not fails.is_set() else ConsumeStatus.CONSUME_SUCCESS)
    broker.faults.busy(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2, count=-1)
    consumers.start("G", topic, got)
    eventually(lambda: len(got.messages) >= 3, within_seconds=60)
    assert {message.stored_topic for message in got.messages} == {topic}
    assert stored_offsets(instance, "G", topic) == [0] * 4
    fails.set()
    eventually(lambda: sum(o or 0 for o in stored_offsets(instance, "G", topic)) == 1, within_seconds=60)
    assert got.messages[-1].reconsume_times > 0


def test_a_new_group_starts_at_the_end_by_default_and_at_a_time_on_demand(
    instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    send(instance, topic, ["old"])
    at_the_end = Collector()
    consumer = consumers.start("LAST", topic, at_the_end, consume_from=ConsumeFrom.LAST)
    eventually(lambda: len(held_queues(consumer, topic)) == 4, within_seconds=60)
    send(instance, topic, ["new"])
    eventually(lambda: "new" in at_the_end.bodies, within_seconds=60)
    from_the_beginning = Collector()
    consumers.start("FIRST", topic, from_the_beginning)
    eventually(lambda: sorted(from_the_beginning.bodies) == ["new", "old"], within_seconds=60)
    assert at_the_end.bodies == ["new"]


def test_batches_do_not_exceed_the_batch_size(instance: ClientInstance, topic: str, consumers: Consumers) -> None:
    queue = instance.routes.read_queues(topic)[0]
    send_to(instance, queue, numbered(25))
    sizes: list[int] = []

    def listener(messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        sizes.append(len(messages))
        return ConsumeStatus.CONSUME_SUCCESS

    consumers.start("G", topic, listener, batch_size=10, threads=1)
    eventually(lambda: sum(sizes) == 25, within_seconds=60)
    assert max(sizes) == 10


def test_messages_that_come_one_by_one_are_pulled_together_after_a_pause(
    broker: EmbeddedBroker, instance: ClientInstance, consumers: Consumers
) -> None:
    pause_seconds = 3.0

    def sizes_of_a_try() -> list[int] | None:
        """None: this process stood still until the pause was over."""
        topic = new_topic(instance, broker.address)
        queue = instance.routes.read_queues(topic)[0]
        sizes: list[int] = []

        def listener(messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
            sizes.append(len(messages))
            return ConsumeStatus.CONSUME_SUCCESS

        consumers.start(unique_name("G"), topic, listener, batch_size=32, pull_interval_seconds=pause_seconds)
        began = time.monotonic()
        send_to(instance, queue, ["first"])
        eventually(lambda: sizes == [1], within_seconds=60)
        for body in numbered(5):
            send_to(instance, queue, [body])
        was_in_time = time.monotonic() - began < pause_seconds
        eventually(lambda: sum(sizes) == 6, within_seconds=60)
        return sizes if was_in_time else None

    assert eventually(sizes_of_a_try, within_seconds=60) == [1, 5]


def test_a_group_that_is_behind_does_not_pause_between_pulls(
    instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    queue = instance.routes.read_queues(topic)[0]
    send_to(instance, queue, numbered(40))
    got = Collector()
    # Ten pulls with a pause after each would take ten minutes.
    consumers.start("G", topic, got, pull_batch_size=4, pull_interval_seconds=60.0)
    eventually(lambda: len(got.bodies) == 40, within_seconds=60)


def test_flow_control_bounds_what_waits_for_a_slow_listener(
    instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    queue = instance.routes.read_queues(topic)[0]
    send_to(instance, queue, numbered(200))
    go_on = threading.Event()

    def listener(message: ReceivedMessage) -> ConsumeStatus:
        go_on.wait(300)
        return ConsumeStatus.CONSUME_SUCCESS

    got = Collector(listener)
    consumer = consumers.start("G", topic, got, threads=2, limits=CacheLimits(messages=40))
    held = eventually(
        lambda: [h for h in consumer.assigned() if h.queue == queue and h.state().is_waiting_for_room],
        within_seconds=60,
    )
    assert 40 <= held[0].state().messages < 40 + 32
    go_on.set()
    eventually(lambda: sorted(got.bodies) == numbered(200), within_seconds=60)
    eventually(lambda: stored_offsets(instance, "G", topic)[0] == 200, within_seconds=60)


def test_a_consumer_survives_lost_connections(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    got = Collector()
    consumer = consumers.start("G", topic, got)
    send(instance, topic, ["before"])
    eventually(lambda: got.bodies == ["before"], within_seconds=60)
    broker.drop_connections()
    eventually(lambda: sent(instance, topic, "after"), within_seconds=60)
    eventually(lambda: "after" in got.bodies, within_seconds=60)
    eventually(lambda: len(held_queues(consumer, topic)) == 4, within_seconds=60)


def test_a_consumer_survives_a_restart_of_its_broker(tmp_path: Path) -> None:
    restarted = EmbeddedBroker(
        listen=f"127.0.0.1:{free_port(neighbours=(-2,))}", settings=quick_settings(), data=tmp_path
    )
    with restarted, patient_instance(restarted.name_servers) as instance:
        topic = new_topic(instance, restarted.address)
        consumers = Consumers(restarted.name_servers)
        with consumers.stack:
            got = Collector()
            consumer = consumers.start("G", topic, got)
            send(instance, topic, numbered(8))
            eventually(lambda: sorted(got.bodies) == numbered(8), within_seconds=60)
            eventually(lambda: stored_offsets(instance, "G", topic) == [2] * 4, within_seconds=60)
            restarted.stop()
            restarted.start()
            eventually(lambda: sent(instance, topic, "after"), within_seconds=60)
            eventually(lambda: "after" in got.bodies, within_seconds=60)
            # A send whose answer came too late is stored, and tried again.
            assert sorted(body for body in got.bodies if body != "after") == numbered(8)
            eventually(lambda: len(held_queues(consumer, topic)) == 4, within_seconds=60)
            admin = Admin(instance.client)

            def members() -> list[str]:
                return [member.client_id for member in admin.consumer_connections(restarted.address, "G")]

            eventually(lambda: members() == [consumer.instance.client_id], within_seconds=60)


def test_a_second_member_of_a_group_needs_an_instance_of_its_own(instance: ClientInstance, topic: str) -> None:
    first = PushConsumer("G", instance=instance).subscribe(topic).register_listener(Collector())
    second = PushConsumer("G", instance=instance).subscribe(topic).register_listener(Collector())
    with first, pytest.raises(UsageError, match="instance of its own"):
        second.start()
    with pytest.raises(UsageError, match="started already"):
        first.start()


def test_a_consumer_without_listener_or_subscription_does_not_start(instance: ClientInstance) -> None:
    for consumer in (
        PushConsumer(unique_name("G"), instance=instance).register_listener(Collector()),
        PushConsumer(unique_name("G"), instance=instance).subscribe("T", "*"),
    ):
        with pytest.raises(UsageError, match="needs a listener and a subscription"):
            consumer.start()
