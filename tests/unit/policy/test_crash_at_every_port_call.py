"""A reconciler that dies between any two port calls loses nothing and repairs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from reconciler.contract.subscription import Shard
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.errors import RedisAway
from reconciler.testing.memory_shards import MemoryShards
from tests.unit.policy.world import Crash, Mortal, World, key

ROUNDS = 7
ROUNDS_AFTERWARDS = 14


def play(world: World, mortal: Mortal) -> None:
    """Rounds of a process that may die, then of one that lives."""
    with suppress(Crash):
        world.rounds(world.process(mortal, owner="first"), ROUNDS)
    second = world.process(owner="second")
    for _ in range(ROUNDS_AFTERWARDS):
        world.rounds(second, 1)
        world.run_replay_workers()
        if is_quiet(world):
            return


def is_quiet(world: World) -> bool:
    """Nothing is pending, open or under repair."""
    rows = world.ledger.rows
    return (
        world.pending() == []
        and all(row.state is not CandidateState.OPEN for row in rows.candidates.values())
        and bool(rows.repairs)
        and all(row.state is RepairState.DONE for row in rows.repairs.values())
    )


def calls_of(make: Callable[[], tuple[World, str]]) -> int:
    world, _ = make()
    mortal = Mortal()
    world.rounds(world.process(mortal, owner="first"), ROUNDS)
    return mortal.calls


def lost_by_end() -> tuple[World, str]:
    world = World(shards=1)
    world.deliver(2)
    return world, world.lose(1)


def lost_by_republish() -> tuple[World, str]:
    world = World(shards=1, repair_order=(Rung.REPUBLISH,))
    return world, world.lose(1)


def lost_by_hand_over() -> tuple[World, str]:
    world = World(shards=1, groups=("billing", "shipping"), repair_order=(Rung.HAND_OVER,))
    return world, world.lose(1)


@pytest.mark.promise("G1", "G4")
@pytest.mark.unmeasured
@pytest.mark.parametrize("make", [lost_by_end, lost_by_republish, lost_by_hand_over])
def test_dying_at_any_call_repairs_once_and_loses_nothing(make: Callable[[], tuple[World, str]]) -> None:
    # To die after a call is to die before the next one.
    total = calls_of(make)
    assert total > 60
    for dies_at in range(1, total + 1):
        world, lost = make()
        play(world, Mortal(dies_at))
        where = f"died at call {dies_at} of {total}"
        for plan in world.topic.subscriptions:
            assert (plan.group, lost) in world.inbox.rows, where
            row = world.candidate(lost, plan.group)
            # A key that was consumed before it was ever judged has no row.
            assert row is None or row.state is CandidateState.SETTLED, f"{where}: {row}"
        repair = world.repair(lost)
        assert repair is not None, where
        assert repair.state is RepairState.DONE, f"{where}: {repair}"
        copies = Counter(copy.unique_key for copy in world.broker.copies)
        assert copies[lost] <= 2, f"{where}: {copies}"
        assert world.pending() == [], where


@pytest.mark.promise("G4")
def test_no_key_leaves_pending_before_its_ledger_row_is_written() -> None:
    """G4 at the moment of the crash: every announced key waits somewhere, was matched, or is closed in the ledger."""

    def make() -> tuple[World, list[str]]:
        world = World(shards=1, tags={"billing": frozenset({"paid"})})
        lost, fine = world.lose(1), world.deliver(2)
        filtered = world.broker.send_half(key(3), tag="refund")
        world.commit_locally(key(3), filtered, tag="refund")
        world.commit_locally(key(4), replace(world.broker.send_half(key(4)), body=b"other"))
        world.announce(key(3), key(4), key(5))
        return world, [lost, fine, key(3), key(4), key(5)]

    world, _ = make()
    mortal = Mortal()
    world.rounds(world.process(mortal), ROUNDS)
    for dies_at in range(1, mortal.calls + 1):
        world, announced = make()
        with suppress(Crash):
            world.rounds(world.process(Mortal(dies_at)), ROUNDS)
        memory = world.shards._memory(world.shard(announced[0]))
        for unique_key in announced:
            row = world.candidate(unique_key)
            waits = unique_key in memory.half or unique_key in memory.pending
            matched = ("billing", unique_key) in world.inbox.rows
            closed = row is not None and row.state is not CandidateState.OPEN
            assert waits or matched or closed, f"died at call {dies_at}: {unique_key} is nowhere"


def test_dying_anywhere_in_the_outage_procedure_starts_the_scan_again() -> None:
    def make() -> World:
        world = World(shards=1)
        process = world.process()
        world.deliver(1)
        world.rounds(process, 1)
        for number in range(2, 9):
            world.deliver(number)
        world.consume(records=False)
        world.shards.wipe()
        world.rounds(process, 1)
        return world

    mortal = Mortal()
    make().recovery(mortal, page_rows=3).run("test")
    for dies_at in range(1, mortal.calls + 1):
        world = make()
        with pytest.raises(Crash):
            world.recovery(Mortal(dies_at), page_rows=3).run("test")
        report = world.recovery(page_rows=3).run("test")
        assert report is not None
        assert report.is_scanned
        assert report.scanned == 8
        world.rounds(world.process(owner="second"), 1)
        assert world.ledger.outages.current("test") is None


@pytest.mark.promise("G5")
def test_redis_that_dies_at_any_call_costs_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """RedisAway instead of a crash: the outage opens, is recovered, and the loss is repaired all the same."""
    reach = MemoryShards._memory
    for fails_at in range(1, 40):
        world, lost = lost_by_end()
        count = 0

        def failing(self: MemoryShards, shard: Shard, fails_at: int = fails_at) -> object:
            nonlocal count
            count += 1
            if count == fails_at:
                raise RedisAway("connection reset")
            return reach(self, shard)

        with monkeypatch.context() as patch:
            patch.setattr(MemoryShards, "_memory", failing)
            process = world.process()
            for _ in range(20):
                with suppress(RedisAway):  # the consumer's own call
                    world.rounds(process, 1)
                world.recovery().run("test")
        assert ("billing", lost) in world.inbox.rows, fails_at
        assert world.pending() == [], fails_at
        assert world.ledger.outages.current("test") is None
