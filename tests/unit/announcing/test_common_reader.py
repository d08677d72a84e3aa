"""A queue is read once for all subscriptions of a process, and none of them misses a key by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from reconciler.announcing import reader as readers
from reconciler.announcing.port import EventKind, PulledBatch, StepKind
from reconciler.announcing.step import MOVE_SECONDS
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import BrokerUnavailable
from reconciler.policy.ports.announcing import Admission
from tests.unit.announcing.announcement_world import QUEUE, Process, World, announcement
from tests.unit.consumers.messages import new_key


def subscription(topic: str, group: str = "billing") -> Subscription:
    return Subscription(environment="test", topic=topic, group=group)


def subscriptions(number: int) -> list[Subscription]:
    return [subscription(f"TOPIC_{index}") for index in range(number)]


def send(world: World, topic: str) -> str:
    key = new_key()
    world.topic.send(announcement(key, topic=topic), tag=topic)
    return key


def counted(world: World, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of the ledger and of Redis from now on, by name."""
    calls: Counter[str] = Counter()

    def count(part: Any, name: str) -> None:
        call = getattr(part, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return call(*arguments, **named)

        monkeypatch.setattr(part, name, counting)

    count(world.ledger, "open_outage_reason")
    for name in ("position", "positions", "size", "take_lease", "renew_leases", "admit"):
        count(world.memory, name)
    return calls


def asked_in_a_minute_of_rest(number: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Of brokers, Redis and the ledger, by that many subscriptions."""
    world = World()
    process = Process(world, *subscriptions(number))
    send(world, "TOPIC_0")
    process.run_seconds(10)
    assert process.joined == number
    calls, topic = counted(world, monkeypatch), world.topic
    before = Counter(held=topic.long_pulls, pulls=topic.pulls, looks=topic.looks)
    process.run_seconds(60)
    return calls + Counter(held=topic.long_pulls, pulls=topic.pulls, looks=topic.looks) - before


def test_fifty_subscriptions_at_rest_ask_as_often_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        one = asked_in_a_minute_of_rest(1, patch)
    fifty = asked_in_a_minute_of_rest(50, monkeypatch)
    assert fifty == one
    # The broker of this test holds no pull.
    assert set(one) == {"held", "looks", "open_outage_reason", "positions", "renew_leases"}
    assert one["looks"] <= 60 / readers.IDLE_PROOF_SECONDS + 1
    assert one["open_outage_reason"] <= 61
    assert one["renew_leases"] <= 61


def test_keys_are_handed_out_by_tag_whatever_the_number_of_pulls() -> None:
    world = World()
    names = [("ORDERS", "billing"), ("ORDERS", "points"), ("REFUNDS", "billing")]
    process = Process(world, *(subscription(*name) for name in names))
    process.run_seconds(5)
    pulls = world.topic.pulls
    orders, refunds = set[str](), set[str]()
    for _ in range(40):
        orders.add(send(world, "ORDERS"))
        refunds.add(send(world, "REFUNDS"))
        send(world, "OTHERS")
        process.run_seconds(0.3)
    process.run_seconds(3)
    assert [process.half(number) for number in range(3)] == [orders, orders, refunds]
    assert world.topic.pulls == pulls


def test_the_offset_of_a_subscription_that_got_no_key_is_moved_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    process = Process(world, subscription("ORDERS"))
    process.run_seconds(5)
    calls = counted(world, monkeypatch)
    for _ in range(300):
        send(world, "OTHERS")
        process.run_seconds(1)
    assert 5 <= calls["admit"] <= 300 / MOVE_SECONDS + 1
    process.run_seconds(MOVE_SECONDS)
    shard = Shard(subscription=subscription("ORDERS"), number=3)
    assert world.memory.position(shard, QUEUE) == 300
    kept = world.memory.known_records(shard, QUEUE).proof
    assert kept is not None
    assert (kept.following, kept.record) == (300, world.topic.stored[QUEUE][299].record)


def test_the_offset_of_a_subscription_that_got_no_key_does_not_pass_one_that_was_not_read_yet() -> None:
    world = World()
    process, shard = Process(world, subscription("ORDERS")), Shard(subscription=subscription("ORDERS"), number=3)
    process.run_seconds(MOVE_SECONDS + 5)
    for _ in range(readers.PULL_MESSAGES_MAX):
        send(world, "OTHERS")
    key = send(world, "ORDERS")
    assert process.reader.run_once() == 0.0, "there is more than one pull brings"
    process.turn(process.steps[0])
    assert (world.memory.position(shard, QUEUE), process.half(0)) == (readers.PULL_MESSAGES_MAX, set())
    process.run_seconds(2)
    assert process.half(0) == {key}


def test_a_key_that_comes_while_others_are_admitted_is_admitted_next() -> None:
    world = World()
    process = Process(world, subscription("ORDERS"))
    process.run_seconds(5)
    admit, late = world.memory.admit, list[str]()

    def stands_still(*arguments: Any, **named: Any) -> Admission:
        if named["unique_keys"] and not late:
            late.append(send(world, "ORDERS"))
            process.reader.run_once()
        return admit(*arguments, **named)

    world.memory.admit = stands_still  # type: ignore[method-assign]
    keys = {send(world, "ORDERS")}
    process.run_seconds(2)
    assert process.half(0) == keys | set(late)
    assert len(late) == 1


def test_a_backlog_of_many_batches_is_admitted_batch_by_batch_and_none_is_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    process = Process(world, subscription("ORDERS"))
    process.run_seconds(5)
    keys = set[str]()
    for _ in range(100):
        send(world, "OTHERS")
        keys.add(send(world, "ORDERS"))
    calls = counted(world, monkeypatch)
    process.run_seconds(2)
    assert process.half(0) == keys
    assert calls["admit"] == 4


def test_one_whose_half_set_is_full_leaves_reads_by_itself_and_comes_back() -> None:
    world = World()
    process = Process(world, subscription("ORDERS"), subscription("REFUNDS"), half_set_keys_max=3)
    process.run_seconds(5)
    orders = [send(world, "ORDERS") for _ in range(6)]
    process.run_seconds(2)
    orders += [send(world, "ORDERS") for _ in range(4)]
    refunds = {send(world, "REFUNDS")}
    process.run_seconds(10)
    assert process.steps[0].states()[0].kind is StepKind.SUSPENDED
    assert (process.joined, process.half(1)) == (1, refunds)
    taken = set[str]()
    for _ in range(3):  # rounds take them
        taken |= process.half(0)
        world.memory._shards[Shard(subscription=subscription("ORDERS"), number=3)].half.clear()
        process.run_seconds(10)
    assert taken == set(orders)
    assert process.joined == 2


def test_what_waits_is_bounded_and_who_cannot_take_it_reads_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "WAITING_MESSAGES_MAX", 5)
    world = World()
    process = Process(world, subscription("ORDERS"), subscription("REFUNDS"))
    process.run_seconds(5)
    slow = process.steps[0]
    keys = set[str]()
    process.due[slow], run_once = None, slow.run_once
    slow.run_once = lambda queue: run_once(queue) if is_free else pytest.fail("it stands still")  # type: ignore[method-assign]
    is_free = False
    wake = process._wake
    process._wake = lambda step: None if step is slow else wake(step)  # type: ignore[method-assign]
    for _ in range(9):
        keys.add(send(world, "ORDERS"))
        process.reader.run_once()
        assert process.reader._waiting_messages <= 5
    is_free, process._wake = True, wake  # type: ignore[method-assign]
    process._wake(slow)
    process.run_seconds(10)
    assert process.half(0) == keys
    assert process.joined == 2


def test_a_redis_that_forgets_while_nothing_is_announced_is_noticed_by_the_look() -> None:
    world = World()
    process = Process(world, subscription("ORDERS"), subscription("REFUNDS"))
    keys = [send(world, "ORDERS"), send(world, "REFUNDS")]
    process.run_seconds(10)
    saved = world.memory.save()
    keys.append(send(world, "ORDERS"))
    process.run_seconds(10)
    world.memory.restore(saved)
    process.run_seconds(5)
    assert process.half(0) == {keys[0], keys[2]}
    assert set(world.kinds()) == {EventKind.REWOUND}
    world.memory.wipe()
    process.run_seconds(5)
    assert world.kinds().count(EventKind.MEMORY_LOST) >= 1
    world.scan_outage()
    process.run_seconds(10)
    assert (process.half(0), process.half(1)) == ({keys[0], keys[2]}, {keys[1]})
    assert process.joined == 2


def test_a_broker_that_is_away_suspends_everybody_and_they_come_back() -> None:
    world = World()
    process = Process(world, subscription("ORDERS"), subscription("REFUNDS"))
    process.run_seconds(5)
    world.topic.is_away = True
    process.run_seconds(10)
    assert [step.states()[0].kind for step in process.steps] == [StepKind.SUSPENDED, StepKind.SUSPENDED]
    assert all(event.is_broker_away for event in world.events)
    world.topic.is_away = False
    key = send(world, "REFUNDS")
    process.run_seconds(10)
    assert process.half(1) == {key}
    assert process.joined == 2


class FailsLater:
    """PullUnderWay that is held, and then fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._asked = 0

    @property
    def is_done(self) -> bool:
        self._asked += 1
        return self._asked > 2

    def batch(self) -> PulledBatch:
        raise self._error

    def when_done(self, call: Callable[[], None]) -> None:
        call()

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("error", [BrokerUnavailable("no pull is held"), ZeroDivisionError()])
def test_where_held_pulls_fail_and_others_do_not_every_subscription_reads_by_itself(error: Exception) -> None:
    world = World()
    process = Process(world, subscription("ORDERS"), subscription("REFUNDS"))
    process.run_seconds(5)
    assert process.joined == 2
    world.topic.begin_pull = lambda queue, **_: FailsLater(error)  # type: ignore[assignment, method-assign]
    keys = [send(world, "ORDERS"), send(world, "REFUNDS")]
    with suppress(ZeroDivisionError):  # the consumer logs it
        process.run_seconds(10)
    process.reader.run_once = lambda: 1.0  # type: ignore[method-assign]
    process.run_seconds(5)
    assert [process.half(0), process.half(1)] == [{keys[0]}, {keys[1]}]


def test_the_leases_of_subscriptions_at_rest_are_renewed_and_one_that_is_lost_is_noticed() -> None:
    world = World()
    process = Process(world, subscription("ORDERS"))
    shard = Shard(subscription=subscription("ORDERS"), number=3)
    process.run_seconds(100)
    assert not world.memory.take_lease(shard, QUEUE, token="heir", lease_seconds=1_000)
    world.memory.release_lease(shard, QUEUE, token="one")
    assert world.memory.take_lease(shard, QUEUE, token="heir", lease_seconds=1_000)
    process.run_seconds(15)
    assert process.steps[0].states()[0].kind is StepKind.NOT_MINE
    assert process.joined == 0


def test_a_subscription_at_rest_that_becomes_another_process_leaves_the_common_reader_and_its_lease() -> None:
    world, owned = World(), {subscription("ORDERS"), subscription("REFUNDS")}
    process = Process(world, *sorted(owned, key=str), concerns=lambda of: of in owned)
    process.run_seconds(30)
    assert process.joined == 2
    owned.remove(subscription("ORDERS"))
    process.run_seconds(3)
    assert process.joined == 1
    assert world.memory.take_lease(
        Shard(subscription=subscription("ORDERS"), number=3), QUEUE, token="heir", lease_seconds=9
    )
    key = send(world, "REFUNDS")
    process.run_seconds(3)
    assert process.half(1) == {key}
    owned.add(subscription("ORDERS"))
    key = send(world, "ORDERS")
    process.run_seconds(30)
    assert process.half(0) == {key}


def test_an_outage_that_was_open_while_a_subscription_rested_is_not_opened_again_by_it() -> None:
    world = World()
    process = Process(world, subscription("ORDERS"))
    key = send(world, "ORDERS")
    process.run_seconds(10)
    world.memory.wipe()
    world.ledger.open_outage("test", reason="MEMORY_LOST", noticed_by="another process")
    world.clock.advance(1.1)
    process.look.run_once()
    world.scan_outage()
    world.close_outage()
    world.clock.advance(1.1)
    process.run_seconds(5)
    assert EventKind.MEMORY_LOST not in world.kinds()
    assert process.half(0) == {key}


def test_a_subscription_that_failed_is_not_called_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    process = Process(world, subscription("ORDERS"))
    process.run_seconds(10)
    world.ledger.is_away = True
    process.run_seconds(20)
    calls = counted(world, monkeypatch)
    process.run_seconds(60)
    assert calls["open_outage_reason"] <= 60 + 60 / 2.5  # one a look, and one an attempt at 2.5 to 5 s
    world.ledger.is_away = False
    process.run_seconds(10)
    assert process.joined == 1


def test_one_that_was_let_go_before_the_reader_had_a_place_comes_back() -> None:
    world = World()
    process = Process(world, subscription("ORDERS"))
    step = process.steps[0]
    while not process.reader._followers:
        step.run_once(QUEUE)
    process.reader.stop()
    process.run_seconds(5)
    assert process.joined == 1
