"""Answers of brokers to pulls that come after something else has happened to their queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from reconciler.errors import BrokerUnavailable, RequestTimeout
from reconciler.rocketmq.client.connection import ConnectionLost
from reconciler.rocketmq.client.name_servers import BrokerAddresses, MessageQueue, TopicRoute
from reconciler.rocketmq.client.topic_subscription import EVERY_TAG, subscribe_to
from reconciler.rocketmq.consumer.process_queue import ProcessQueue
from reconciler.rocketmq.consumer.pull_loop import FAILURE_PAUSE_SECONDS, IDLE_PAUSE_SECONDS, PullLoop
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.codes import ResponseCode, SystemFlag
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from reconciler.rocketmq.wire.record import MessageRecord
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import record

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)
MASTER, SLAVE = "127.0.0.1:1", "127.0.0.1:2"
PULL_INTERVAL_SECONDS = 7.0
Taken = Callable[[ProcessQueue, Sequence[ReceivedMessage], int], object]


class Broker:
    """Client, route and thread of the loop in one: each pull is answered by its test."""

    request_timeout_seconds = 1.0

    def __init__(self) -> None:
        self.pulls: list[tuple[str, Command, Future[Command]]] = []
        self.addresses = {0: MASTER}
        self.looks_without_a_route = 0
        self.on_take: Taken = lambda _queue, _messages, _era: None
        self.takes_back = True
        self.given_back: list[int] = []
        self.doubted: list[str] = []
        self.pauses: list[float] = []
        self.moved: list[ProcessQueue] = []

    def submit_soon(self, address: str, command: Command, timeout_seconds: float) -> Future[Command]:
        held_seconds = int(command.fields["suspendTimeoutMillis"]) / 1000
        assert 0 < held_seconds < timeout_seconds - 5, "a broker looks every few seconds whether a pull is over"
        self.pulls.append((address, command, Future()))
        return self.pulls[-1][2]

    def answer(self, number: int, answer: Command | Exception) -> None:
        future = self.pulls[number][2]
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def route(self, topic: str) -> TopicRoute:
        if self.looks_without_a_route:
            self.looks_without_a_route -= 1
            raise BrokerUnavailable("no route")
        broker = BrokerAddresses(broker_name="b", cluster="", addresses=self.addresses)
        return TopicRoute(topic=topic, queues=(), brokers={"b": broker})

    def soon(self, step: Callable[[], object]) -> None:
        step()

    def later(self, delay_seconds: float, step: Callable[[], object]) -> None:
        self.pauses.append(delay_seconds)
        step()

    def take(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], *, era: int) -> None:
        self.on_take(queue, messages, era)

    def give_back(self, unread: MessageRecord) -> bool:
        self.given_back.append(unread.queue_offset)
        return self.takes_back

    @property
    def offsets(self) -> list[int]:
        return [int(command.fields["queueOffset"]) for _, command, _ in self.pulls]


def loop_of(broker: Broker) -> PullLoop:
    every_part = cast("Any", broker)
    return PullLoop(
        every_part,
        every_part,
        group="CG",
        settings=PushSettings(pull_interval_seconds=PULL_INTERVAL_SECONDS),
        subscriptions={"S": subscribe_to("S", "blue", version=1), "T": subscribe_to("T", EVERY_TAG, version=2)},
        steps=every_part,
        consumption=every_part,
        on_doubt=broker.doubted.append,
        on_offset_moved=broker.moved.append,
        give_back=broker.give_back,
    )


def found(*records: MessageRecord, behind: int = 0) -> Command:
    following = records[-1].queue_offset + 1
    fields = {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": str(following + behind)}
    return Command(code=ResponseCode.SUCCESS, fields=fields, body=b"".join(map(encode_record, records)))


def message(offset: int, *, topic: str = "T", tags: str = "red") -> MessageRecord:
    return record(topic=topic, queue_offset=offset, properties={"TAGS": tags})


def unreadable(offset: int) -> MessageRecord:
    return record(topic="T", queue_offset=offset, system_flag=int(SystemFlag.COMPRESSED), body=b"no zlib")


def without_messages(code: ResponseCode, following: int) -> Command:
    fields = {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": str(following)}
    return Command(code=code, fields=fields)


@pytest.mark.parametrize(
    ("meanwhile", "pulls", "moved"),
    [
        (lambda _: None, [100, 50], True),
        (lambda queue: queue.seek(5), [100, 5], False),
        (ProcessQueue.revoke, [100], False),
    ],
    ids=["nothing", "reset", "lost"],
)
def test_an_offset_that_a_broker_corrects_undoes_no_reset_that_came_meanwhile(
    meanwhile: Callable[[ProcessQueue], object], pulls: list[int], *, moved: bool
) -> None:
    broker = Broker()
    queue = ProcessQueue(QUEUE, start_offset=100)
    loop_of(broker).pull_soon(queue)
    meanwhile(queue)
    broker.answer(0, without_messages(ResponseCode.PULL_OFFSET_MOVED, 50))
    assert broker.offsets == pulls
    assert queue.state().committable == pulls[-1]
    assert broker.moved == ([queue] if moved else [])


@pytest.mark.parametrize(
    ("in_hand", "reset_to", "pulls"),
    [([], None, [100, 100]), ([], 5, [100, 5]), ([99], None, [99, 100, 99])],
    ids=["nothing", "reset meanwhile", "another one in hand"],
)
def test_messages_that_nobody_could_take_come_again_and_undo_no_reset_that_came_meanwhile(
    in_hand: list[int], reset_to: int | None, pulls: list[int]
) -> None:
    broker = Broker()
    loop = loop_of(broker)
    queue = ProcessQueue(QUEUE, start_offset=pulls[0])
    loop.pull_soon(queue)
    for number, offset in enumerate(in_hand):
        broker.answer(number, found(message(offset)))

    def no_memory(queue: ProcessQueue, _messages: Sequence[ReceivedMessage], _era: int) -> None:
        if reset_to is not None:
            queue.seek(reset_to)
            loop.pull_soon(queue)
        raise MemoryError

    broker.on_take = no_memory
    broker.answer(len(in_hand), found(message(100)))
    assert broker.offsets == pulls, "a pull that is under way after the reset is not void"
    assert queue.committable() == pulls[-1]


LATE: dict[str, Command | Exception] = {
    "messages": found(message(100)),
    "one that cannot be read": found(unreadable(100)),
    "nothing new": without_messages(ResponseCode.PULL_NOT_FOUND, 100),
    "nothing for this group": without_messages(ResponseCode.PULL_RETRY_IMMEDIATELY, 120),
    "another offset": without_messages(ResponseCode.PULL_OFFSET_MOVED, 50),
    "an unknown group": Command(code=ResponseCode.SUBSCRIPTION_NOT_EXIST),
    "a broken connection": ConnectionLost("closed"),
    "no answer": RequestTimeout("no answer in time"),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("event", ["reset", "lost"])
def test_an_answer_to_a_pull_before_a_reset_or_a_loss_changes_nothing_any_more(event: str, late: str) -> None:
    broker, taken = Broker(), list[int]()
    broker.on_take = lambda _queue, messages, _era: taken.extend(one.queue_offset for one in messages)
    loop = loop_of(broker)
    queue = ProcessQueue(QUEUE, start_offset=100)
    loop.pull_soon(queue)
    if event == "lost":
        queue.revoke()
    else:
        queue.seek(5)
        loop.pull_soon(queue)
    broker.answer(0, LATE[late])
    assert broker.offsets == ([100] if event == "lost" else [100, 5]), "one pull of a queue at a time"
    assert (taken, broker.moved) == ([], [])
    assert broker.given_back == [], "it comes again anyway"
    fails = late in ("an unknown group", "a broken connection", "no answer")
    assert broker.doubted == ([MASTER] if event == "reset" and fails else [])


@pytest.mark.parametrize(
    ("answer", "pauses"),
    [
        (found(message(100)), [PULL_INTERVAL_SECONDS]),
        (found(message(100), behind=1), []),
        (without_messages(ResponseCode.PULL_NOT_FOUND, 100), [IDLE_PAUSE_SECONDS]),
        (without_messages(ResponseCode.PULL_RETRY_IMMEDIATELY, 120), []),
        (ConnectionLost("closed"), [pytest.approx(FAILURE_PAUSE_SECONDS, abs=FAILURE_PAUSE_SECONDS / 2)]),
    ],
    ids=["all there was", "more waits", "nothing", "none for this group", "failed"],
)
def test_a_queue_that_is_behind_is_pulled_without_a_pause_and_a_broker_that_holds_no_pull_is_not_asked_without_end(
    answer: Command | Exception, pauses: list[float]
) -> None:
    broker = Broker()
    loop_of(broker).pull_soon(ProcessQueue(QUEUE, start_offset=100))
    broker.answer(0, answer)
    assert broker.pauses == pauses
    assert len(broker.pulls) == 2


def test_a_queue_is_reset_between_its_answer_and_its_handing_over() -> None:
    class Reset(ProcessQueue):
        def accept(self, *args: Any, **kwargs: Any) -> Any:
            fresh = super().accept(*args, **kwargs)
            self.seek(5)
            return fresh

    broker, eras = Broker(), list[int]()
    broker.on_take = lambda _queue, _messages, era: eras.append(era)
    queue = Reset(QUEUE, start_offset=100)
    loop_of(broker).pull_soon(queue)
    broker.answer(0, found(message(100)))
    assert (eras, queue.era) == ([0], 1), "what was pulled before the reset is void for who consumes it"


@pytest.mark.parametrize(("takes_back", "next_pull"), [(True, 102), (False, 100)])
def test_a_message_that_cannot_be_read_is_passed_over_once_a_broker_has_taken_it_back(
    next_pull: int, *, takes_back: bool
) -> None:
    broker = Broker()
    broker.takes_back = takes_back
    queue = ProcessQueue(QUEUE, start_offset=100)
    loop_of(broker).pull_soon(queue)
    broker.answer(0, found(unreadable(100), unreadable(101)))
    assert broker.offsets == [100, next_pull]
    assert queue.committable() == next_pull


def test_each_topic_of_a_group_has_its_own_tags_and_version_of_the_subscription() -> None:
    broker, taken = Broker(), list[tuple[str, int]]()
    broker.on_take = lambda queue, messages, _era: taken.extend(
        (queue.queue.topic, one.queue_offset) for one in messages
    )
    loop = loop_of(broker)
    for number, topic in enumerate("ST"):
        loop.pull_soon(ProcessQueue(MessageQueue(topic=topic, broker_name="b", queue_id=0), start_offset=0))
        assert broker.pulls[-1][1].fields["subVersion"] == str(number + 1)
        broker.answer(-1, found(message(0, topic=topic), message(1, topic=topic, tags="blue")))
    assert taken == [("S", 1), ("T", 0), ("T", 1)]


@pytest.mark.parametrize(("addresses", "asked"), [({0: MASTER, 1: SLAVE}, MASTER), ({1: SLAVE}, SLAVE)])
def test_the_master_is_asked_and_a_slave_while_there_is_none(addresses: dict[int, str], asked: str) -> None:
    broker = Broker()
    broker.addresses = addresses
    loop_of(broker).pull_soon(ProcessQueue(QUEUE, start_offset=0))
    assert [address for address, _, _ in broker.pulls] == [asked]


def test_a_broker_that_leaves_the_route_for_a_moment_is_pulled_from_again() -> None:
    broker = Broker()
    broker.looks_without_a_route = 2
    loop_of(broker).pull_soon(ProcessQueue(QUEUE, start_offset=7))
    assert broker.offsets == [7]
    assert broker.doubted == [], "it was not asked"
