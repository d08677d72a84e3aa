"""Answers that come after something else has happened to their queue: of brokers to pulls, of listeners to messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from reconciler.clock import ManualClock
from reconciler.rocketmq.client.name_servers import BrokerAddresses, MessageQueue, TopicRoute
from reconciler.rocketmq.client.topic_subscription import EVERY_TAG, subscribe_to
from reconciler.rocketmq.consumer.concurrent import ConcurrentConsumption
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.orderly import OrderlyConsumption
from reconciler.rocketmq.consumer.process_queue import ProcessQueue
from reconciler.rocketmq.consumer.pull_loop import PullLoop
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.received_message import ReceivedMessage, received
from reconciler.rocketmq.wire.record import encode_record
from tests.unit.rocketmq.records import record

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)
ROUTE = TopicRoute(
    topic="T", queues=(), brokers={"b": BrokerAddresses(broker_name="b", cluster="", addresses={0: "127.0.0.1:1"})}
)


class Broker:
    """Client, route and thread of the loop in one: each pull is answered by its test."""

    request_timeout_seconds = 1.0

    def __init__(self) -> None:
        self.pulls: list[tuple[int, Future[Command]]] = []
        self.on_take: Callable[[ProcessQueue], None] = lambda _queue: None

    def submit_soon(self, _address: str, command: Command, _timeout_seconds: float) -> Future[Command]:
        self.pulls.append((int(command.fields["queueOffset"]), Future()))
        return self.pulls[-1][1]

    def route(self, _topic: str) -> TopicRoute:
        return ROUTE

    def soon(self, step: Callable[[], object]) -> None:
        step()

    def later(self, _delay_seconds: float, step: Callable[[], object]) -> None:
        step()

    def take(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], *, era: int) -> None:
        self.on_take(queue)

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.pulls]


def loop_of(broker: Broker, moved: list[ProcessQueue] | None = None) -> PullLoop:
    every_part = cast("Any", broker)
    return PullLoop(
        every_part,
        every_part,
        group="CG",
        settings=PushSettings(),
        subscriptions={"T": subscribe_to("T", EVERY_TAG, version=1)},
        steps=every_part,
        consumption=every_part,
        on_doubt=lambda _: None,
        on_offset_moved=([] if moved is None else moved).append,
        give_back=lambda _: True,
    )


@pytest.mark.parametrize(("reset_to", "goes_on_at"), [(None, 50), (5, 5)], ids=["no reset", "reset meanwhile"])
def test_an_offset_that_a_broker_corrects_undoes_no_reset_that_came_meanwhile(
    reset_to: int | None, goes_on_at: int
) -> None:
    broker, moved = Broker(), list[ProcessQueue]()
    loop = loop_of(broker, moved)
    queue = ProcessQueue(QUEUE, start_offset=100)
    loop.pull_soon(queue)
    if reset_to is not None:
        queue.seek(reset_to)
    fields = {"nextBeginOffset": "50", "minOffset": "0", "maxOffset": "50"}
    broker.pulls[0][1].set_result(Command(code=ResponseCode.PULL_OFFSET_MOVED, fields=fields))
    assert broker.offsets == [100, goes_on_at]
    assert queue.committable() == goes_on_at
    assert moved == ([queue] if reset_to is None else [])


@pytest.mark.parametrize(
    ("reset_to", "pulls"), [(None, [100, 100]), (5, [100, 5])], ids=["no reset", "reset meanwhile"]
)
def test_messages_that_nobody_could_take_come_again_and_undo_no_reset_that_came_meanwhile(
    reset_to: int | None, pulls: list[int]
) -> None:
    broker = Broker()
    loop = loop_of(broker)
    queue = ProcessQueue(QUEUE, start_offset=100)

    def no_memory(queue: ProcessQueue) -> None:
        if reset_to is not None:
            queue.seek(reset_to)
            loop.pull_soon(queue)
        raise MemoryError

    broker.on_take = no_memory
    loop.pull_soon(queue)
    body = encode_record(record(topic="T", queue_offset=100))
    fields = {"nextBeginOffset": "101", "minOffset": "0", "maxOffset": "101"}
    broker.pulls[0][1].set_result(Command(code=ResponseCode.SUCCESS, fields=fields, body=body))
    assert broker.offsets == pulls, "a pull that is under way after the reset is not void"
    assert queue.committable() == pulls[-1]


class Member:
    """Pool, thread and locks of a consumption in one: tasks run at once, later steps when a test runs them."""

    def __init__(self) -> None:
        self.has_lock = True
        self.steps: list[Callable[[], object]] = []

    def submit(self, task: Callable[[], object]) -> bool:
        task()
        return True

    def later(self, _delay_seconds: float, step: Callable[[], object]) -> None:
        self.steps.append(step)

    def holds(self, _queue: MessageQueue) -> bool:
        return self.has_lock


def taken(*offsets: int) -> tuple[ProcessQueue, list[ReceivedMessage]]:
    """A queue that has these messages in hand."""
    queue = ProcessQueue(QUEUE, start_offset=offsets[0])
    messages = [received(record(topic="T", queue_offset=offset)) for offset in offsets]
    queue.accept(messages, offsets[-1] + 1, era=queue.era)
    return queue, messages


@pytest.mark.parametrize(
    ("meanwhile", "sent_back"),
    [(lambda _queue: None, [7]), (ProcessQueue.revoke, []), (lambda queue: queue.seek(5), [])],
    ids=["nothing", "lost", "reset"],
)
def test_a_message_that_fails_goes_back_unless_it_comes_again_anyway(
    meanwhile: Callable[[ProcessQueue], object], sent_back: list[int]
) -> None:
    queue, messages = taken(7)
    back: list[int] = []

    def listener(_messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        meanwhile(queue)
        return ConsumeStatus.RECONSUME_LATER

    def send_back(message: ReceivedMessage) -> bool:
        back.append(message.queue_offset)
        return True

    member = cast("Any", Member())
    consumption = ConcurrentConsumption(
        listener,
        pool=member,
        steps=member,
        send_back=send_back,
        resume=lambda _queue: None,
        batch_size=1,
        local_retry_seconds=1.0,
    )
    consumption.take(queue, messages, era=0)
    assert back == sent_back


def test_a_lock_that_runs_out_during_a_turn_holds_the_batches_behind_it_until_it_is_back() -> None:
    queue, messages = taken(7, 8)
    member, consumed = Member(), list[int]()

    def listener(batch: Sequence[ReceivedMessage]) -> ConsumeStatus:
        consumed.extend(message.queue_offset for message in batch)
        member.has_lock = False
        return ConsumeStatus.CONSUME_SUCCESS

    every_part = cast("Any", member)
    orderly = OrderlyConsumption(
        listener,
        pool=every_part,
        steps=every_part,
        locks=every_part,
        send_back=lambda _message: False,
        resume=lambda _queue: None,
        clock=ManualClock(),
        batch_size=1,
        suspend_seconds=1.0,
        max_reconsume_times=-1,
    )
    orderly.take(queue, messages, era=0)
    assert consumed == [7], "another member may have the queue now"
    member.has_lock = True
    member.steps.pop()()
    assert consumed == [7, 8]
