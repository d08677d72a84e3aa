"""The breaker where processes share shards or groups, or stand by: calm counts from the last storm, with shards."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.contract.tables import HoldKind
from reconciler.policy import round as reconcile_round
from reconciler.policy.brakes import BreakerRules
from reconciler.policy.round import ReconcileRound
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key


def storm_of_one_process(*, groups: tuple[str, ...] = ("billing",)) -> tuple[World, ReconcileRound]:
    """A process has all shards, and too many losses are to become due in its next rounds."""
    world = World(groups=groups, breaker=BreakerRules(candidates_min=5))
    process = world.process()
    world.rounds(process, 1)
    for number in range(6):
        world.lose(number)
    return world, process


def test_a_stand_by_without_shards_does_not_close_the_breaker_of_who_has_them() -> None:
    world, process = storm_of_one_process()
    stand_by = world.process(owner="reconciler-2")
    for _ in range(5):
        world.clock.advance(2)
        world.rounds(process, 1, every=0)
        world.rounds(stand_by, 10, every=0.1)
    assert world.broker.ends == []
    assert world.verdict(key(0)) == "LOST_CONFIRM"
    assert list(world.ledger.holds.active(ENVIRONMENT)[TOPIC]) == [HoldKind.BREAKER]
    world.rounds(process, 4)
    assert len(world.broker.ends) == 6


def test_a_process_that_has_had_calm_rounds_before_a_storm_elsewhere_waits_for_three_new_ones() -> None:
    """Two processes share the shards."""
    world, process = storm_of_one_process()
    other = world.process(owner="reconciler-2")
    first = world.topic.shards_of(world.subscriptions[0])[0]
    world.shards.release(first, token="reconciler-1")
    for _ in range(6):
        world.clock.advance(1)
        other.run(world.subscriptions[0])
        process.run(world.subscriptions[0])
    assert world.ledger.holds.active(ENVIRONMENT) == {}
    world.clock.advance(0.1)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.BREAKER, by="reconciler-1", reason="storm")
    for closes in (False, False, True):
        world.clock.advance(1)
        other.run(world.subscriptions[0])
        assert (world.ledger.holds.active(ENVIRONMENT) == {}) == closes


def test_processes_that_share_the_groups_of_a_topic_still_close_its_breaker() -> None:
    world = World(groups=("billing", "shipping"), breaker=BreakerRules(candidates_min=5))
    processes = {s.group: world.process(owner=f"of {s.group}") for s in world.subscriptions}
    for subscription in world.subscriptions:
        processes[subscription.group].run(subscription)
    world.clock.advance(0.1)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.BREAKER, by="other", reason="storm")
    for _ in range(3):
        assert TOPIC in world.ledger.holds.active(ENVIRONMENT)
        world.clock.advance(5)
        for subscription in world.subscriptions:
            for process in processes.values():
                process.run(subscription)
    assert world.ledger.holds.active(ENVIRONMENT) == {}


def test_a_storm_elsewhere_after_the_first_calm_round_of_one_group_is_waited_for_by_every_group() -> None:
    world = World(groups=("billing", "shipping"))
    process = world.process()
    first, second = world.subscriptions
    process.run(first)
    world.clock.advance(0.1)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.BREAKER, by="other", reason="storm")
    for _ in range(3):
        world.clock.advance(1)
        process.run(second)
        assert TOPIC in world.ledger.holds.active(ENVIRONMENT)
        process.run(first)
    assert world.ledger.holds.active(ENVIRONMENT) == {}


def test_a_stand_by_that_takes_the_shards_over_counts_its_calm_from_then() -> None:
    world, process = storm_of_one_process()
    stand_by = world.process(owner="reconciler-2")
    world.rounds(stand_by, 5, every=0.1)
    process.release()
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.BREAKER, by="reconciler-1", reason="storm")
    world.clock.advance(0.1)
    for _ in range(3):
        assert TOPIC in world.ledger.holds.active(ENVIRONMENT)
        world.rounds(stand_by, 1, every=0.1)
    assert world.ledger.holds.active(ENVIRONMENT) == {}


def test_calm_rounds_elsewhere_do_not_lift_it_in_the_middle_of_a_long_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round after a storm is long, and its own storm shows late; the other process has many calm ones meanwhile."""
    monkeypatch.setattr(reconcile_round, "PAGE_KEYS", 1)
    world = World(shards=2, breaker=BreakerRules(candidates_min=5))
    subscription = world.subscriptions[0]
    long, short = world.process(owner="long"), world.process(owner="short")
    stormy, calm = world.topic.shards_of(subscription)
    assert world.shards.take(calm, token="short", lease_seconds=60)
    long.run(subscription)
    in_storm = [number for number in range(60) if world.shard(key(number)) == stormy]
    for number in in_storm[:6]:
        world.lose(number)
    world.rounds(long, 1)
    for number in in_storm[6:12]:
        world.lose(number)  # due a round later than the first six
    held = {TOPIC: [HoldKind.BREAKER]}
    while world.ledger.holds.active(ENVIRONMENT) != held:
        world.rounds(long, 1)
    world.clock.advance(5)
    world.consume()
    seen: list[Any] = []
    look_up = world.outbox.look_up

    def slowly(*arguments: Any, **named: Any) -> Any:
        with monkeypatch.context() as inside:
            inside.setattr(world.outbox, "look_up", look_up)
            world.clock.advance(0.5)
            short.run(subscription)
        seen.append(world.ledger.holds.active(ENVIRONMENT))
        return look_up(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(world.outbox, "look_up", slowly)
        long.run(subscription)
    assert len(seen) >= 6
    assert seen == [held] * len(seen)
