"""What happens to a queue while a listener runs or its messages wait: lost, reset, without its lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from reconciler.clock import ManualClock
from reconciler.rocketmq.client.name_servers import MessageQueue
from reconciler.rocketmq.consumer.concurrent import ConcurrentConsumption
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt, MessageListener
from reconciler.rocketmq.consumer.orderly import TURN_SECONDS, OrderlyConsumption
from reconciler.rocketmq.consumer.process_queue import CacheLimits, ProcessQueue
from reconciler.rocketmq.consumer.retry import RetryRoute
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.received_message import ReceivedMessage, received
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedCluster

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)
Meanwhile = Callable[[ProcessQueue], object]

NOTHING: Meanwhile = lambda _queue: None  # noqa: E731  # a row's name and value in one
LOST: Meanwhile = ProcessQueue.revoke
RESET: Meanwhile = lambda queue: queue.seek(5)  # noqa: E731


class Member:
    """Pool, thread, locks and broker of a consumption in one; tasks run at once unless it is busy."""

    def __init__(self) -> None:
        self.has_lock = True
        self.is_busy = False
        self.takes_back = True
        self.tasks: list[Callable[[], object]] = []
        self.steps: list[Callable[[], object]] = []
        self.unlocked: list[MessageQueue] = []
        self.sent_back: list[int] = []
        self.resumed: list[ProcessQueue] = []
        self.while_sent_back: Callable[[], object] = lambda: None

    def submit(self, task: Callable[[], object]) -> bool:
        if self.is_busy:
            self.tasks.append(task)
        else:
            task()
        return True

    def later(self, _delay_seconds: float, step: Callable[[], object]) -> None:
        self.steps.append(step)

    def holds(self, _queue: MessageQueue) -> bool:
        return self.has_lock

    def unlock(self, queue: MessageQueue) -> None:
        self.unlocked.append(queue)

    def send_back(self, message: ReceivedMessage) -> bool:
        self.while_sent_back()
        if self.takes_back:
            self.sent_back.append(message.queue_offset)
        return self.takes_back

    def concurrent(self, listener: MessageListener, *, batch_size: int = 1) -> ConcurrentConsumption:
        every_part = cast("Any", self)
        return ConcurrentConsumption(
            listener,
            pool=every_part,
            steps=every_part,
            send_back=self.send_back,
            resume=self.resumed.append,
            batch_size=batch_size,
            local_retry_seconds=1.0,
        )

    def orderly(
        self, listener: MessageListener, *, clock: ManualClock | None = None, batch_size: int = 1, most: int = -1
    ) -> OrderlyConsumption:
        every_part = cast("Any", self)
        return OrderlyConsumption(
            listener,
            pool=every_part,
            steps=every_part,
            locks=every_part,
            send_back=self.send_back,
            resume=self.resumed.append,
            clock=clock or ManualClock(),
            batch_size=batch_size,
            suspend_seconds=1.0,
            max_reconsume_times=most,
        )


class Listener:
    """Notes each batch; what happens while it runs, and its answer, are a test's."""

    def __init__(self, answer: ConsumeStatus | FailedAt = ConsumeStatus.CONSUME_SUCCESS) -> None:
        self.batches: list[list[int]] = []
        self.answer = answer
        self.meanwhile: dict[int, Callable[[], object]] = {}

    def __call__(self, batch: Sequence[ReceivedMessage]) -> ConsumeStatus | FailedAt:
        self.batches.append([message.queue_offset for message in batch])
        self.meanwhile.pop(batch[0].queue_offset, lambda: None)()
        return self.answer


def taken(*offsets: int, limits: CacheLimits | None = None) -> tuple[ProcessQueue, list[ReceivedMessage]]:
    """A queue that has these messages in hand."""
    queue = ProcessQueue(QUEUE, start_offset=offsets[0], limits=limits)
    return queue, pulled(queue, *offsets)


def pulled(queue: ProcessQueue, *offsets: int) -> list[ReceivedMessage]:
    messages = [received(record(topic="T", queue_offset=offset)) for offset in offsets]
    queue.accept(messages, offsets[-1] + 1, era=queue.era)
    return messages


# --------------------------------------------------------------------------- concurrent


@pytest.mark.parametrize(
    ("meanwhile", "sent_back"), [(NOTHING, [7]), (LOST, []), (RESET, [])], ids=["nothing", "lost", "reset"]
)
@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_message_that_fails_goes_back_unless_it_comes_again_anyway(
    meanwhile: Meanwhile, sent_back: list[int], *, is_orderly: bool
) -> None:
    """Of an orderly consumer one that failed too often, which is given up."""
    queue, messages = taken(7)
    member, listener = Member(), Listener(ConsumeStatus.RECONSUME_LATER)
    listener.meanwhile[7] = lambda: meanwhile(queue)
    consumption = member.orderly(listener, most=0) if is_orderly else member.concurrent(listener)
    consumption.take(queue, messages, era=0)
    assert member.sent_back == sent_back


@pytest.mark.parametrize(
    ("meanwhile", "consumed"), [(NOTHING, [[7]]), (LOST, []), (RESET, [])], ids=["nothing", "lost", "reset"]
)
def test_a_message_that_waits_for_a_thread_is_consumed_unless_it_comes_again_anyway(
    meanwhile: Meanwhile, consumed: list[list[int]]
) -> None:
    queue, messages = taken(7)
    member, listener = Member(), Listener()
    member.is_busy = True
    member.concurrent(listener).take(queue, messages, era=0)
    meanwhile(queue)
    member.tasks.pop()()
    assert listener.batches == consumed


@pytest.mark.parametrize(
    ("meanwhile", "consumed"), [(NOTHING, [[7], [7]]), (LOST, [[7]]), (RESET, [[7]])], ids=["nothing", "lost", "reset"]
)
def test_a_message_that_no_broker_takes_back_comes_again_here_unless_it_comes_again_anyway(
    meanwhile: Meanwhile, consumed: list[list[int]]
) -> None:
    queue, messages = taken(7)
    member, listener = Member(), Listener(ConsumeStatus.RECONSUME_LATER)
    member.takes_back = False
    member.while_sent_back = lambda: meanwhile(queue)
    member.concurrent(listener).take(queue, messages, era=0)
    listener.answer = ConsumeStatus.CONSUME_SUCCESS
    member.steps.pop()()
    assert listener.batches == consumed


@pytest.mark.parametrize("answer", [ConsumeStatus.CONSUME_SUCCESS, ConsumeStatus.RECONSUME_LATER])
def test_a_full_queue_is_pulled_again_once_its_messages_are_consumed_or_sent_back(answer: ConsumeStatus) -> None:
    queue, messages = taken(7, limits=CacheLimits(messages=1))
    assert queue.begin_pull() is None
    member = Member()
    member.concurrent(Listener(answer)).take(queue, messages, era=0)
    assert member.resumed == [queue]


def test_messages_behind_the_one_that_failed_are_consumed_and_use_up_no_delivery() -> None:
    queue, messages = taken(7, 8, 9)
    member, listener = Member(), Listener(FailedAt(1))

    def all_is_well() -> None:
        listener.answer = ConsumeStatus.CONSUME_SUCCESS

    listener.meanwhile[9] = all_is_well
    member.concurrent(listener, batch_size=3).take(queue, messages, era=0)
    assert (listener.batches, member.sent_back) == ([[7, 8, 9], [9]], [8])
    assert queue.committable() == 10


# --------------------------------------------------------------------------- orderly


def test_a_lock_that_runs_out_during_a_turn_holds_the_batches_behind_it_until_it_is_back() -> None:
    queue, messages = taken(7, 8)
    member, listener = Member(), Listener()

    def runs_out() -> None:
        member.has_lock = False

    listener.meanwhile[7] = runs_out
    member.orderly(listener).take(queue, messages, era=0)
    assert listener.batches == [[7]], "another member may have the queue now"
    member.has_lock = True
    member.steps.pop()()
    assert listener.batches == [[7], [8]]


def test_a_queue_that_is_lost_while_a_batch_runs_is_unlocked_behind_it_and_not_gained_again_before() -> None:
    """Two batches of a queue at a time would be out of order, and the end of the first would unlock the second."""
    queue, messages = taken(7, 8)
    member, listener = Member(), Listener()
    orderly = member.orderly(listener)
    seen: list[tuple[bool, list[MessageQueue]]] = []

    def is_lost() -> None:
        queue.revoke()
        orderly.release(queue)
        seen.append((orderly.is_busy(QUEUE), list(member.unlocked)))

    listener.meanwhile[7] = is_lost
    orderly.take(queue, messages, era=0)
    assert seen == [(True, [])]
    assert listener.batches == [[7]], "8 is the new owner's"
    assert (orderly.is_busy(QUEUE), member.unlocked) == (False, [QUEUE])


def test_a_queue_whose_last_offset_is_being_stored_is_consumed_no_further_and_unlocked_behind_that() -> None:
    queue, messages = taken(7, 8)
    member, listener = Member(), Listener()
    orderly = member.orderly(listener)
    listener.meanwhile[7] = queue.revoke
    orderly.take(queue, messages, era=0)
    assert (listener.batches, member.unlocked) == ([[7]], [])
    orderly.release(queue)
    assert (orderly.is_busy(QUEUE), member.unlocked) == (False, [QUEUE])


def test_a_queue_that_is_lost_while_it_pauses_is_unlocked_behind_the_pause() -> None:
    queue, messages = taken(7)
    member, listener = Member(), Listener(ConsumeStatus.RECONSUME_LATER)
    orderly = member.orderly(listener)
    orderly.take(queue, messages, era=0)
    queue.revoke()
    orderly.release(queue)
    assert (orderly.is_busy(QUEUE), member.unlocked) == (True, [])
    member.steps.pop()()
    assert (orderly.is_busy(QUEUE), member.unlocked, listener.batches) == (False, [QUEUE], [[7]])


def test_a_queue_that_is_lost_while_nothing_of_it_runs_is_unlocked_at_once() -> None:
    queue, _ = taken(7)
    member = Member()
    orderly = member.orderly(Listener())
    queue.revoke()
    orderly.release(queue)
    assert (orderly.is_busy(QUEUE), member.unlocked) == (False, [QUEUE])


def test_after_a_reset_the_batches_before_it_are_void_and_those_behind_it_are_consumed() -> None:
    queue, messages = taken(7, 8)
    listener = Listener()
    orderly = Member().orderly(listener)

    def is_reset() -> None:
        queue.seek(5)
        orderly.take(queue, pulled(queue, 5, 6), era=queue.era)

    listener.meanwhile[7] = is_reset
    orderly.take(queue, messages, era=0)
    assert listener.batches == [[7], [5], [6]]
    assert queue.committable() == 7


def test_messages_that_come_while_a_batch_runs_wait_for_its_end() -> None:
    queue, messages = taken(7)
    listener, order = Listener(), list[str]()
    orderly = Member().orderly(listener)

    def others_come() -> None:
        orderly.take(queue, pulled(queue, 8), era=0)
        order.append("7 ends")

    listener.meanwhile = {7: others_come, 8: lambda: order.append("8 begins")}
    orderly.take(queue, messages, era=0)
    assert order == ["7 ends", "8 begins"]


def test_what_failed_and_what_was_behind_it_come_again_in_their_order() -> None:
    queue, messages = taken(6, 7, 8, 9)
    member, listener = Member(), Listener(FailedAt(1))
    member.orderly(listener, batch_size=3).take(queue, messages, era=0)
    listener.answer = ConsumeStatus.CONSUME_SUCCESS
    member.steps.pop()()
    assert listener.batches == [[6, 7, 8], [7, 8, 9]]


def test_a_queue_that_pauses_holds_no_queue_of_another_broker() -> None:
    member, listener = Member(), Listener(ConsumeStatus.RECONSUME_LATER)
    orderly = member.orderly(listener)
    queue, messages = taken(7)
    orderly.take(queue, messages, era=0)
    other = ProcessQueue(MessageQueue(topic="T", broker_name="c", queue_id=0), start_offset=9)
    orderly.take(other, pulled(other, 9), era=0)
    assert listener.batches == [[7], [9]]
    listener.answer = ConsumeStatus.CONSUME_SUCCESS
    for step in member.steps:
        step()
    assert listener.batches == [[7], [9], [7], [9]]
    assert (queue.committable(), other.committable()) == (8, 10)


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_batch_of_a_retry_queue_has_messages_of_one_topic(*, is_orderly: bool) -> None:
    retries = MessageQueue(topic="%RETRY%CG", broker_name="b", queue_id=0)
    queue = ProcessQueue(retries, start_offset=0)
    messages = [
        received(record(topic="%RETRY%CG", queue_offset=offset, properties={"RETRY_TOPIC": topic}))
        for offset, topic in enumerate("TTUT")
    ]
    queue.accept(messages, 4, era=0)
    member, listener = Member(), Listener()
    if is_orderly:
        member.orderly(listener, batch_size=8).take(queue, messages, era=0)
    else:
        member.concurrent(listener, batch_size=8).take(queue, messages, era=0)
    assert listener.batches == [[0, 1], [2], [3]]


def test_a_queue_whose_turn_is_over_stands_behind_the_others_and_loses_nothing() -> None:
    queue, messages = taken(7, 8)
    member, listener, clock = Member(), Listener(), ManualClock()

    def takes_its_time() -> None:
        member.is_busy = True
        clock.advance(TURN_SECONDS)

    listener.meanwhile[7] = takes_its_time
    member.orderly(listener, clock=clock).take(queue, messages, era=0)
    assert listener.batches == [[7]], "the thread is for another queue now"
    member.tasks.pop()()
    assert listener.batches == [[7], [8]]


# --------------------------------------------------------------------------- sent back


@pytest.mark.parametrize(("of", "to"), [(0, 1), (1, 0)])
def test_a_message_that_its_broker_does_not_take_back_is_copied_to_another_one(of: int, to: int) -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        for broker in cluster.brokers:
            cluster.name_server.place("%RETRY%CG", broker)
            broker.on(RequestCode.SEND_MESSAGE_V2, broker.success)
        message = received(replace(record(), broker_name=cluster.brokers[of].name))
        assert RetryRoute(cluster.client, cluster.routes, group="CG", max_reconsume_times=16).later(message)
        assert [one.code for one in cluster.brokers[of].asked] == [RequestCode.CONSUMER_SEND_MSG_BACK]
        assert [one.code for one in cluster.brokers[to].asked] == [RequestCode.SEND_MESSAGE_V2]


@pytest.mark.parametrize(("times", "delay_level"), [(0, "0"), (1, "0"), (2, "-1"), (3, "-1")])
def test_a_message_that_failed_in_its_last_delivery_goes_to_the_dead_letters(times: int, delay_level: str) -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.CONSUMER_SEND_MSG_BACK, cluster.broker.success)
        message = received(replace(record(), broker_name="broker-a", reconsume_times=times))
        assert RetryRoute(cluster.client, cluster.routes, group="CG", max_reconsume_times=2).later(message)
        assert [one.fields["delayLevel"] for one in cluster.broker.asked] == [delay_level]
