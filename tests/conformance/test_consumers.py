"""PushConsumer on every broker: groups, retries, dead letters, order, offsets, watermark."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.errors import BrokerRefused
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.watermark import Watermarks
from reconciler.policy.evidence import WatermarkState
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.consumer import queue_offsets
from reconciler.rocketmq.consumer.push_consumer import (
    ConsumeFrom,
    ConsumeStatus,
    PushConsumer,
    PushSettings,
    ReceivedMessage,
)
from reconciler.rocketmq.consumer.queue_offsets import GroupOffsets
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.message import Message
from tests.conformance.steps import GROUP, Steps, new_steps
from tests.conformance.targets import Target
from tests.polling import eventually
from tests.services.broadcasting_member import broadcasting_member

SETTINGS = PushSettings(
    consume_from=ConsumeFrom.FIRST,
    threads=4,
    suspend_seconds=2.0,
    max_reconsume_times=2,
    offset_commit_interval_seconds=0.3,
    rebalance_interval_seconds=2.0,
    orderly_suspend_seconds=0.1,
)


@pytest.fixture
def patient_last_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that answers late is no broker that is away."""
    monkeypatch.setattr(queue_offsets, "LAST_COMMIT_SECONDS", 60.0)


class Received:
    """A listener that keeps what it got and answers as the function says."""

    def __init__(
        self, answer: Callable[[ReceivedMessage], ConsumeStatus] = lambda _: ConsumeStatus.CONSUME_SUCCESS
    ) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self._messages: list[ReceivedMessage] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        statuses = set()
        for message in messages:
            with self._lock:
                self._messages.append(message)
            statuses.add(self._answer(message))
        (status,) = statuses
        return status

    @property
    def messages(self) -> list[ReceivedMessage]:
        """All so far."""
        with self._lock:
            return list(self._messages)

    @property
    def bodies(self) -> list[bytes]:
        """Their bodies."""
        return [message.body for message in self.messages]


def consumer(steps: Steps, topic: str, received: Received, *, tags: str = "*", orderly: bool = False) -> PushConsumer:
    made = PushConsumer(f"CG_{topic}", instance=steps.instance, settings=SETTINGS)
    return made.subscribe(topic, tags).register_listener(received, orderly=orderly)


def numbers(member: PushConsumer, topic: str) -> list[int]:
    """Queues of the topic (not of the retry topic) that the member holds."""
    return sorted(held.queue.queue_id for held in member.assigned() if held.queue.topic == topic)


def send_all(steps: Steps, topic: str, bodies: Sequence[bytes]) -> list[str]:
    sender = steps.instance.sender(GROUP)
    return [sender.send(Message(topic=topic, body=body)).unique_key for body in bodies]


def test_two_members_share_the_queues_and_one_takes_over(steps: Steps, target: Target) -> None:
    topic = target.new_topic("members")
    received = Received()
    with consumer(steps, topic, received) as first:
        eventually(lambda: numbers(first, topic) == [0, 1, 2, 3], within_seconds=60, message="all queues")
        with new_steps(target) as other_steps, consumer(other_steps, topic, received) as second:
            eventually(
                lambda: len(numbers(first, topic)) == len(numbers(second, topic)) == 2,
                within_seconds=60,
                message="two queues each",
            )
            assert sorted(numbers(first, topic) + numbers(second, topic)) == [0, 1, 2, 3]
            keys = send_all(steps, topic, [f"a{number}".encode() for number in range(40)])
            eventually(lambda: len(set(received.bodies)) == 40, within_seconds=60, message="40 messages")
        eventually(lambda: numbers(first, topic) == [0, 1, 2, 3], within_seconds=60, message="a takeover")
        keys += send_all(steps, topic, [f"b{number}".encode() for number in range(40)])
        eventually(lambda: len(set(received.bodies)) == 80, within_seconds=60, message="80 messages")
    assert {message.unique_key for message in received.messages} == set(keys)
    assert {message.topic for message in received.messages} == {topic}


def test_what_the_listener_refuses_comes_again_and_ends_as_a_dead_letter(steps: Steps) -> None:
    topic = steps.target.new_topic("retry")

    def answer(message: ReceivedMessage) -> ConsumeStatus:
        if message.body == b"raises":
            raise RuntimeError("the listener fails")
        good = message.body == b"once" and message.reconsume_times == 1
        return ConsumeStatus.CONSUME_SUCCESS if good else ConsumeStatus.RECONSUME_LATER

    received = Received(answer)
    with consumer(steps, topic, received):
        keys = dict(
            zip([b"once", b"never", b"raises"], send_all(steps, topic, [b"once", b"never", b"raises"]), strict=True)
        )
        expected = {(b"once", 0), (b"once", 1)}
        expected |= {(body, times) for body in (b"never", b"raises") for times in range(3)}

        def seen() -> set[tuple[bytes, int]]:
            return {(message.body, message.reconsume_times) for message in received.messages}

        eventually(lambda: seen() == expected, within_seconds=60, message="all retries")
        dead_topic = f"%DLQ%CG_{topic}"
        eventually(
            lambda: steps.admin.topics(steps.target.broker).get(dead_topic) is not None,
            within_seconds=60,
            message="the dead-letter topic",
        )
        if not steps.expect.dead_letters_readable:
            with pytest.raises(BrokerRefused) as refused:
                steps.pull(dead_topic)
            assert refused.value.code == ResponseCode.NO_PERMISSION
            steps.admin.create_topic(steps.target.broker, dead_topic, queues=1)
        dead = steps.until_delivered(dead_topic, 2)
    assert {record.body for record in dead} == {b"never", b"raises"}
    for message in received.messages:
        assert (message.topic, message.unique_key) == (topic, keys[message.body])
    assert {record.unique_key for record in dead} == {keys[b"never"], keys[b"raises"]}
    assert {record.properties["RETRY_TOPIC"] for record in dead} == {topic}


@pytest.mark.usefixtures("patient_last_commit")
def test_only_subscribed_tags_arrive_and_what_lies_between_is_passed(steps: Steps) -> None:
    topic = steps.target.new_topic("tagged")
    received = Received()
    with consumer(steps, topic, received, tags="Aa || B"):
        for tag in ("Aa", "B", "C", "BB", "Aa", None):  # "Aa" and "BB" have one hash, by which brokers filter
            steps.send(topic, str(tag).encode(), tags=tag)
        steps.send(topic, b"last", tags="Aa")
        eventually(lambda: b"last" in received.bodies, within_seconds=60, message="the last message")
    assert collections.Counter(received.bodies) == {b"Aa": 2, b"B": 1, b"last": 1}
    assert steps.instance.offsets.of_group(steps.target.broker, steps.queue(topic), f"CG_{topic}") == 7


def test_an_orderly_consumer_keeps_each_queue_in_order(steps: Steps) -> None:
    topic = steps.target.new_topic("orderly")
    refused = threading.Event()

    def answer(message: ReceivedMessage) -> ConsumeStatus:
        if message.body == b"1:10" and not refused.is_set():
            refused.set()
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    received = Received(answer)
    with consumer(steps, topic, received, orderly=True):
        for number in range(25):
            for queue in range(4):
                steps.send(topic, f"{queue}:{number}".encode(), queue=queue)
        eventually(lambda: len(received.bodies) >= 101, within_seconds=60, message="101 deliveries")
    for queue in range(4):
        of_queue = [message.body.split(b":")[1] for message in received.messages if message.queue_id == queue]
        expected = [f"{number}".encode() for number in range(25)]
        if queue == 1:
            expected.insert(10, b"10")
        assert of_queue == expected


@pytest.mark.usefixtures("patient_last_commit")
def test_offsets_of_all_queues_are_at_the_broker_after_shutdown(steps: Steps) -> None:
    """Also of the empty ones: the watermark rests on them."""
    topic, address = steps.target.new_topic("commit"), steps.target.broker
    received = Received()
    with consumer(steps, topic, received) as member:
        for _ in range(3):
            steps.send(topic, b"x", queue=1)
        eventually(lambda: len(received.bodies) == 3, within_seconds=60, message="3 messages")
        eventually(lambda: numbers(member, topic) == [0, 1, 2, 3], within_seconds=60)
    stored = [
        steps.instance.offsets.of_group(address, steps.queue(topic, number), f"CG_{topic}") for number in range(4)
    ]
    assert stored == [0, 3, 0, 0]


@pytest.mark.usefixtures("patient_last_commit")
def test_a_new_group_s_first_offsets_are_all_kept(steps: Steps) -> None:
    """Brokers lose one of the first two offsets of a topic and group that they store at once, and answer both: without
    care, here one of 30 groups on 4.9.7 and 5.3.3."""
    topic, address, offsets = steps.target.new_topic("first_offsets"), steps.target.broker, steps.instance.offsets
    queues = [steps.queue(topic, number) for number in range(4)]
    for number in range(200):
        group = f"CG_{topic}_{number}"
        if steps.expect.checks_offset_groups:
            steps.admin.create_group(address, group)
        member = GroupOffsets(offsets, steps.instance.routes, group=group, settings=SETTINGS)
        assert member.commit([(queue, 1) for queue in queues], is_last=True) == 4
        assert [offsets.of_group(address, queue, group) for queue in queues] == [1] * 4, group


@pytest.mark.usefixtures("patient_last_commit")
def test_a_restarted_consumer_goes_on_where_it_stopped(steps: Steps, target: Target) -> None:
    topic = target.new_topic("restart")
    before, after = Received(), Received()
    with consumer(steps, topic, before):
        send_all(steps, topic, [b"1", b"2"])
        eventually(lambda: len(before.bodies) == 2, within_seconds=60, message="2 messages")
    send_all(steps, topic, [b"3", b"4"])
    with new_steps(target) as later, consumer(later, topic, after):
        eventually(lambda: len(after.bodies) == 2, within_seconds=60, message="2 more messages")
    assert (set(before.bodies), set(after.bodies)) == ({b"1", b"2"}, {b"3", b"4"})


def test_a_committed_transaction_arrives_once_and_names_its_half(steps: Steps) -> None:
    topic = steps.target.new_topic("tx_consumed")
    received = Received()
    with consumer(steps, topic, received):
        half = steps.send_half(topic)
        steps.end(half)
        eventually(lambda: received.messages, within_seconds=60, message="the committed message")
    (message,) = received.messages
    assert message.unique_key == half.unique_key
    assert message.prepared_transaction_offset == half.sent.commit_log_offset


def test_a_group_is_deserted_when_its_last_member_has_gone(steps: Steps) -> None:
    topic = steps.target.new_topic("deserted")
    of = Subscription(environment="test", topic=topic, group=f"CG_{topic}")
    brokers = RemotingBrokerEvidence(steps.instance, skew_margin_seconds=10.0)
    assert brokers.is_deserted(of)
    with consumer(steps, topic, Received()):
        eventually(lambda: not brokers.is_deserted(of), within_seconds=60)
    eventually(lambda: brokers.is_deserted(of), within_seconds=60)


def test_the_watermark_stands_before_what_the_group_has_not_consumed(steps: Steps) -> None:
    topic = steps.target.new_topic("watermark")
    group = f"CG_{topic}"
    watermarks = Watermarks(steps.client, steps.instance.routes, steps.instance.families)
    with consumer(steps, topic, Received()) as member:
        send_all(steps, topic, [b"1", b"2", b"3", b"4"])
        eventually(lambda: numbers(member, topic) == [0, 1, 2, 3], within_seconds=60)
        newest = max(r.store_timestamp_ms for n in range(4) for r in steps.until_delivered(topic, 1, queue=n))

        def passed() -> bool:
            mark = watermarks.watermark(topic, group, skew_margin_seconds=0.0)
            return mark.state is WatermarkState.KNOWN and mark.at_ms > newest

        eventually(passed, within_seconds=60, message="the watermark to pass the last message")
    steps.send(topic, b"not consumed", queue=2)
    (*_, last) = steps.until_delivered(topic, 2, queue=2)
    mark = watermarks.watermark(topic, group, skew_margin_seconds=0.0)
    assert mark.state is WatermarkState.KNOWN
    assert mark.at_ms <= last.store_timestamp_ms
    assert (mark.waiting, mark.waiting_since_ms) == (1, last.store_timestamp_ms)
    positions = watermarks.positions(topic, group)
    assert positions is not None
    (behind,) = [p for p in positions if p.topic == topic and (p.consumer_offset or 0) < p.max_offset]
    assert (behind.queue_id, behind.consumer_offset, behind.max_offset) == (2, 1, 2)


def test_a_group_that_broadcasts_is_known_while_a_member_is_connected_and_not_after_it(steps: Steps) -> None:
    topic = steps.target.new_topic("broadcast")
    group, admin = f"CG_{topic}", Admin(steps.client)
    with broadcasting_member(steps.target.broker, group=group, topic=topic):
        assert admin.groups_of_topic(steps.target.broker, topic, asks_each=True) == [group]
    eventually(lambda: not admin.groups_of_topic(steps.target.broker, topic, asks_each=True), within_seconds=60)
