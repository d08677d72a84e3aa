"""One member of a group among others: queues that change hands, their locks, what brokers tell it, and its end."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import BrokerUnavailable, RequestTimeout, UsageError
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.name_servers import MessageQueue
from reconciler.rocketmq.client.topic_subscription import EVERY_TAG, subscribe_to
from reconciler.rocketmq.consumer.admin import AdminAnswers
from reconciler.rocketmq.consumer.assignment import Assignment
from reconciler.rocketmq.consumer.group_members import LOCK_COUNTS_SECONDS, BrokerQueueLocks, group_members
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.process_queue import CacheLimits, ProcessQueue
from reconciler.rocketmq.consumer.push_consumer import PushConsumer, _Running
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command

ONE, TWO = (MessageQueue(topic="T", broker_name=name, queue_id=0) for name in "ab")
OTHER = MessageQueue(topic="U", broker_name="a", queue_id=0)
NOTICE = Command(code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)


class Group:
    """Routes, offsets, locks and consumption of one member in one. Notes what is asked of it, in its order."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []
        self.members: list[str] | None = ["me"]
        self.granted: set[MessageQueue] = {ONE, TWO, OTHER}
        self.busy: set[MessageQueue] = set()
        self.without_start: set[MessageQueue] = set()

    def assignment(self, *, is_orderly: bool = True) -> Assignment:
        every_part = cast("Any", self)
        return Assignment(
            every_part,
            every_part,
            client_id="me",
            limits=CacheLimits(),
            members=self.of_group,
            locks=every_part if is_orderly else None,
            on_gained=lambda held: self.log.append(("gained", held.queue)),
            on_lost=lambda held: self.log.append(("lost", held.queue)),
            is_busy=lambda queue: queue in self.busy,
        )

    def read_queues(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in (ONE, TWO, OTHER) if queue.topic == topic]

    def of_group(self, _topic: str) -> list[str]:
        if self.members is None:
            raise BrokerUnavailable("nobody tells")
        return self.members

    def start_of(self, queue: MessageQueue) -> int:
        if queue in self.without_start:
            raise BrokerUnavailable("away")
        self.log.append(("start of", queue))
        return 7

    def commit(self, offsets: Iterable[tuple[MessageQueue, int]], *, is_last: bool) -> int:
        stored = list(offsets)
        self.log.append(("stored", *stored, "and waited for" if is_last else "one-way"))
        return len(stored)

    def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        wanted = list(queues)
        self.log.append(("lock", *wanted))
        return self.granted & set(wanted)

    def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        self.log.append(("unlock", *queues))


def test_a_start_is_read_once_the_lock_is_there_since_the_former_owner_commits_before_it_unlocks() -> None:
    group = Group()
    group.granted = {TWO}
    assert not group.assignment().rebalance(["T"]), "to be tried again soon"
    assert group.log == [("lock", ONE, TWO), ("start of", TWO), ("gained", TWO)]


@pytest.mark.parametrize("event", ["lost", "stopped"])
def test_a_lock_whose_queue_was_not_taken_over_yet_is_given_up_with_it(event: str) -> None:
    """Else its next owner stands still for a minute."""
    group = Group()
    assignment = group.assignment()
    group.without_start = {TWO}
    assert not assignment.rebalance(["T"]), "to be tried again soon"
    assert assignment.rebalance(["U"])
    assert "unlock" not in [what for what, *_ in group.log], "it is tried again"
    group.members = ["me", "other"]
    group.log.clear()
    if event == "lost":
        assert assignment.rebalance(["T"])
        assignment.end()
        assert group.log[0] == ("unlock", TWO)
    else:
        assignment.end()
    assert [queue for what, *queues in group.log if what == "unlock" for queue in queues].count(TWO) == 1


def test_a_queue_is_gained_again_once_the_batch_that_ran_when_it_was_lost_has_ended() -> None:
    group = Group()
    assignment = group.assignment()
    group.busy = {ONE}
    assert not assignment.rebalance(["T"]), "to be tried again soon"
    assert [held.queue for held in assignment.queues()] == [TWO]
    assert ("lock", ONE) not in group.log
    group.busy.clear()
    assert assignment.rebalance(["T"])
    assert [held.queue for held in assignment.queues()] == [TWO, ONE]


def test_a_queue_is_given_up_once_its_last_offset_is_stored() -> None:
    group = Group()
    assignment = group.assignment()
    assignment.rebalance(["T", "U"])
    (held,) = (held for held in assignment.queues() if held.queue == TWO)
    group.members = ["me", "other"]
    group.log.clear()
    assert assignment.rebalance(["T"])
    assert group.log == [("stored", (TWO, 7), "and waited for"), ("lost", TWO)]
    assert held.is_revoked
    group.log.clear()
    assignment.commit_one(held)
    assignment.commit()
    assert group.log == [("stored", (ONE, 7), (OTHER, 7), "one-way")], "TWO is the other one's"


def test_the_locks_of_queues_that_are_held_are_renewed_and_no_others() -> None:
    group = Group()
    assignment = group.assignment()
    assignment.rebalance(["T", "U"])
    group.members = ["me", "other"]
    assignment.rebalance(["T"])
    group.log.clear()
    assignment.renew_locks()
    assert group.log == [("lock", ONE, OTHER)]


def test_at_its_end_a_member_stores_all_offsets_and_then_unlocks() -> None:
    group = Group()
    assignment = group.assignment()
    assignment.rebalance(["T"])
    group.log.clear()
    assignment.end()
    assert group.log == [("stored", (ONE, 7), (TWO, 7), "and waited for"), ("unlock", ONE, TWO)]
    assert assignment.queues() == []


@pytest.mark.parametrize(
    ("members", "keeps"), [(None, True), (["other"], False)], ids=["nobody tells", "not registered yet"]
)
def test_the_queues_of_a_topic_stay_while_nobody_tells_its_members(members: list[str] | None, *, keeps: bool) -> None:
    group = Group()
    assignment = group.assignment(is_orderly=False)
    assignment.rebalance(["T"])
    group.members = members
    assert not assignment.rebalance(["T"]), "to be tried again soon"
    assert [held.queue for held in assignment.queues()] == ([ONE, TWO] if keeps else [])


# --------------------------------------------------------------------------- locks, and who else is there


class Brokers:
    """Routes and client of two brokers, "a" and "b"; each answers as its test says, or is away."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.away: set[str] = set()
        self.unknown: set[str] = set()
        self.granted: set[MessageQueue] = {ONE, TWO, OTHER}
        self.answer_seconds = 0.0
        self.asked: list[tuple[str, int]] = []
        self.bodies: dict[str, object] = {}

    def master_of(self, topic: str, broker_name: str) -> str:
        if topic in self.unknown:
            raise BrokerUnavailable("no route")
        return broker_name

    def masters(self, _topic: str) -> dict[str, str]:
        return {"a": "a", "b": "b"}

    def request(self, address: str, command: Command, *, timeout_seconds: float) -> Command:
        self.asked.append((address, command.code))
        self.clock.advance(self.answer_seconds)
        if address in self.away:
            raise RequestTimeout("no answer in time")
        if command.code == RequestCode.LOCK_BATCH_MQ:
            rows = [
                {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
                for queue in sorted(self.granted)
            ]
            return Command(code=0, body=json.dumps({"lockOKMQSet": rows}).encode())
        return Command(code=0, body=json.dumps(self.bodies.get(address, {})).encode())

    def locks(self) -> BrokerQueueLocks:
        every_part = cast("Any", self)
        return BrokerQueueLocks(every_part, every_part, group="CG", client_id="me", clock=self.clock)


def test_a_lock_counts_from_the_question_on_however_late_the_answer_comes() -> None:
    brokers = Brokers()
    brokers.answer_seconds = 10.0
    locks = brokers.locks()
    assert locks.lock([ONE]) == {ONE}
    brokers.clock.advance(LOCK_COUNTS_SECONDS - 10.5)
    assert locks.holds(ONE)
    brokers.clock.advance(0.5)
    assert not locks.holds(ONE), "the broker may give it to another member soon"


def test_a_lock_that_a_broker_does_not_renew_is_lost_at_once_and_one_that_it_is_silent_on_is_not() -> None:
    brokers = Brokers()
    locks = brokers.locks()
    assert locks.lock([ONE, TWO]) == {ONE, TWO}
    brokers.away, brokers.granted = {"b"}, set()
    assert locks.lock([ONE, TWO]) == set()
    assert (locks.holds(ONE), locks.holds(TWO)) == (False, True)


@pytest.mark.parametrize(("away", "unknown"), [({"a"}, set()), (set(), {"U"})], ids=["broker", "route"])
def test_locks_of_a_broker_that_is_away_keep_no_other_lock_waiting(away: set[str], unknown: set[str]) -> None:
    brokers = Brokers()
    locks = brokers.locks()
    queues = [OTHER, TWO]
    brokers.away, brokers.unknown = away, unknown
    assert locks.lock(queues) == {TWO}
    brokers.asked.clear()
    locks.unlock_all(queues)
    assert ("b", RequestCode.UNLOCK_BATCH_MQ) in brokers.asked
    assert not locks.holds(TWO), "given up for good"


@pytest.mark.parametrize("fails", ["away", "no list"])
def test_another_broker_is_asked_who_the_members_are(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "shuffle", list.sort)
    brokers = cast("Any", Brokers())
    brokers.bodies = {"a": {"consumerIdList": "me"}, "b": {"consumerIdList": ["me", "other"]}}
    brokers.away = {"a"} if fails == "away" else set()
    assert group_members(brokers, brokers, group="CG", topic="T") == ["me", "other"]
    brokers.away = {"a", "b"}
    with pytest.raises(BrokerUnavailable, match="no broker of T tells"):
        group_members(brokers, brokers, group="CG", topic="T")


# --------------------------------------------------------------------------- notices, and the end


class Parts:
    """Threads, pool, assignment and instance of a member that runs: steps run when a test runs them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.ready: list[Callable[[], object]] = []
        self.later_steps: list[Callable[[], object]] = []
        self.is_complete = True
        self.rebalances = 0
        self.while_rebalanced: Callable[[], object] = lambda: None
        self.heartbeats = self

    def soon(self, step: Callable[[], object]) -> None:
        self.ready.append(step)

    def later(self, _delay_seconds: float, step: Callable[[], object]) -> None:
        self.later_steps.append(step)

    def rebalance(self, _topics: object) -> bool:
        self.rebalances += 1
        self.while_rebalanced()
        return self.is_complete

    def run_ready(self) -> None:
        while self.ready:
            self.ready.pop(0)()

    def close(self, **_: object) -> bool:
        self.log.append("closed")
        return True

    def end(self) -> None:
        self.log.append("offsets stored")

    def leave_consumer(self, _group: str) -> None:
        self.log.append("left")

    def forget_group(self, _group: str) -> None:
        self.log.append("forgotten")


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def running(parts: Parts) -> _Running:
    consumer = PushConsumer("CG", instance=ClientInstance("127.0.0.1:1"))
    subscriptions = {"T": subscribe_to("T", EVERY_TAG, version=1)}
    made = _Running(consumer, lambda _batch: ConsumeStatus.CONSUME_SUCCESS, subscriptions, is_orderly=False)
    for name in ("_upkeep_steps", "_pulling_steps", "_pool", "assignment", "_instance"):
        setattr(made, name, parts)
    return made


def test_many_notices_that_come_before_a_rebalance_cost_one(running: _Running, parts: Parts) -> None:
    for _ in range(5):
        running._on_members_changed("a", NOTICE)
    parts.run_ready()
    assert parts.rebalances == 1


def test_a_notice_that_comes_while_a_rebalance_runs_is_followed_by_another_one(running: _Running, parts: Parts) -> None:
    def joins() -> None:
        parts.while_rebalanced = lambda: None
        running._on_members_changed("a", NOTICE)

    parts.while_rebalanced = joins
    running._on_members_changed("a", NOTICE)
    parts.run_ready()
    assert parts.rebalances == 2


def test_a_rebalance_that_waits_for_something_is_tried_again_once_however_many_were_incomplete(
    running: _Running, parts: Parts
) -> None:
    parts.is_complete = False
    for _ in range(20):  # the regular ones and those after notices of 20 s, say
        running._rebalance()
        running._on_members_changed("a", NOTICE)
        parts.run_ready()
    assert len(parts.later_steps) == 1, "each would go on for ever"
    for _ in range(3):
        parts.later_steps.pop()()
        parts.run_ready()
        assert len(parts.later_steps) == 1
    parts.is_complete = True
    parts.later_steps.pop()()
    parts.run_ready()
    assert parts.later_steps == []


def test_a_member_that_stops_leaves_the_group_once_its_offsets_are_stored(running: _Running, parts: Parts) -> None:
    assert running.stop()
    assert parts.log == ["closed", "closed", "closed", "offsets stored", "left", "forgotten"]


def test_a_member_that_was_shut_down_is_not_started_again() -> None:
    consumer = PushConsumer("CG", instance=ClientInstance("127.0.0.1:1")).subscribe("T")
    consumer.register_listener(lambda _batch: ConsumeStatus.CONSUME_SUCCESS)
    assert consumer.shutdown(), "nothing of it runs"
    with pytest.raises(UsageError):
        consumer.start()


# --------------------------------------------------------------------------- resets


def test_a_reset_of_a_queue_that_is_not_here_keeps_no_other_one_waiting() -> None:
    group, log = Group(), list[tuple[str, MessageQueue]]()
    assignment = group.assignment()
    group.granted = {TWO, OTHER}
    assignment.rebalance(["T", "U"])
    answers = answers_of(assignment, lambda held: log.append(("pulled", held.queue)))
    rows = [
        {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in ((ONE, 3), (TWO, 4), (OTHER, -1))
    ]
    group.log.clear()
    answers.reset_offsets("a", Command(code=0, body=json.dumps({"offsetTable": rows}).encode()))
    assert group.log == [("stored", (TWO, 4), "one-way"), ("stored", (OTHER, 0), "one-way")]
    assert log == [("pulled", TWO), ("pulled", OTHER)]
    assert {held.queue: held.committable() for held in assignment.queues()} == {TWO: 4, OTHER: 0}


def test_the_offsets_of_one_topic_are_told_without_those_of_another() -> None:
    assignment = Group().assignment()
    assignment.rebalance(["T", "U"])
    told = answers_of(assignment, lambda _held: None).status("a", Command(code=0, fields={"topic": "U"}))
    assert b'"topic":"U"' in told.body
    assert b'"topic":"T"' not in told.body


def answers_of(assignment: Assignment, pull_soon: Callable[[ProcessQueue], None]) -> AdminAnswers:
    def listener(_messages: Sequence[object]) -> ConsumeStatus:
        return ConsumeStatus.CONSUME_SUCCESS

    return AdminAnswers(
        assignment,
        membership=cast("Any", None),
        listener=listener,
        is_orderly=False,
        started_at_ms=0,
        name_servers="",
        clock=ManualClock(),
        pull_soon=pull_soon,
    )
