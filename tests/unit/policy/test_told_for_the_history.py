"""What policy tells the history: in the order in which it became durable, and no key without its row."""

from __future__ import annotations

from contextlib import suppress
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from reconciler.contract.tables import EVERY_GROUP, CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DatabaseAway
from reconciler.policy.events import Event, KeysLeft, RepairStepped, RoundFinished, ShardRoundRan, VerdictsWritten
from reconciler.policy.ports.rounds import RoundDone
from tests.unit.policy.world import Crash, Events, Mortal, World


class Witness(Events):
    """Compares every event with what is durable when it is told."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def emit(self, event: Event) -> None:
        if isinstance(event, VerdictsWritten):
            for written in event.entries:
                row = self.world.candidate(written.unique_key, event.shard.subscription.group)
                assert row is not None
                assert (row.verdict, row.state) == (written.verdict, written.state)
        if isinstance(event, KeysLeft):
            pending = self.world.pending()
            for key in event.keys:
                row = self.world.candidate(key.unique_key, event.shard.subscription.group)
                assert row is not None
                assert (row.state, row.verdict) == (key.state, key.verdict)
                assert key.unique_key not in pending
        if isinstance(event, ShardRoundRan):
            assert self.world.ledger.rounds.last(event.done.shard) == event.done
        super().emit(event)


def witnessed(world: World) -> Witness:
    witness = Witness(world)
    world.events = witness
    return witness


def test_every_verdict_round_and_leaving_is_told_once_it_is_durable() -> None:
    world = World()
    witness = witnessed(world)
    lost, late = world.lose(1), world.deliver(2)
    world.consume(records=False)
    world.rounds(world.process(), 10)
    left = {key.unique_key: (key.state, key.verdict) for event in witness.of(KeysLeft) for key in event.keys}
    assert left == dict.fromkeys([lost, late], (CandidateState.SETTLED, Verdict.CONSUMED))
    written = [v.verdict for event in witness.of(VerdictsWritten) for v in event.entries if v.unique_key == lost]
    assert written == [Verdict.LOST_CONFIRM, Verdict.CONSUMED]
    ran = [(event.done.shard, event.done.epoch, event.done.generation) for event in witness.of(ShardRoundRan)]
    assert sorted(ran) == sorted(world.ledger.rows.rounds)


@pytest.mark.parametrize(
    "refusal",
    [
        DatabaseAway("ledger: No space left on device"),
        sa.exc.IntegrityError("INSERT", {}, ValueError('no partition of relation "reconciler_round" found for row')),
    ],
    ids=["full", "a partition is missing"],
)
def test_a_round_that_the_ledger_did_not_take_is_told(refusal: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shards=1)
    world.lose(1)
    process = world.process()
    with monkeypatch.context() as disk:
        disk.setattr(type(world.ledger.rounds), "store", Mock(side_effect=refusal))
        for _ in range(3):
            with suppress(type(refusal)):
                world.rounds(process, 1)
    ran = [event.done.generation for event in world.events.of(ShardRoundRan)]
    assert ran == [1, 2, 3]
    assert not world.ledger.rows.rounds


def test_a_round_whose_commit_was_not_answered_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shards=1)
    witness = witnessed(world)
    world.lose(1)
    process = world.process()
    store = world.ledger.rounds.store
    cut = [True]

    def stored_without_an_answer(*done: RoundDone) -> None:
        store(*done)
        if cut.pop():
            raise DatabaseAway("ledger: server closed the connection unexpectedly")
        cut.append(False)

    with monkeypatch.context() as network:
        network.setattr(world.ledger.rounds, "store", stored_without_an_answer)
        with suppress(DatabaseAway):
            world.rounds(process, 1)
        assert not cut
        cut.append(False)
        world.rounds(process, 3)
    ran = [(event.done.shard, event.done.epoch, event.done.generation) for event in witness.of(ShardRoundRan)]
    assert sorted(ran) == sorted(world.ledger.rows.rounds)
    assert not any(row.is_void for row in world.ledger.rows.rounds.values())


def test_rounds_that_ran_together_are_told_although_the_floor_of_the_first_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(shards=2)
    process = world.process()
    world.rounds(process, 1)
    keys = [world.lose(number) for number in range(20)]
    assert {world.shard(key).number for key in keys} == {0, 1}, "both rounds are sent together"
    world.events.all.clear()
    with monkeypatch.context() as disk:
        full = DatabaseAway("ledger: No space left on device")
        disk.setattr(type(world.ledger.rounds), "raise_floor", Mock(side_effect=full))
        with suppress(DatabaseAway):
            world.rounds(process, 1)
    ran = {(event.done.shard, event.done.epoch, event.done.generation) for event in world.events.of(ShardRoundRan)}
    assert len(ran) == 2
    assert ran <= world.ledger.rows.rounds.keys()


def test_pending_is_conserved_over_what_rounds_tell() -> None:
    world = World()
    witness = witnessed(world)
    for number in range(1, 40):
        if number % 3:
            world.deliver(number)
        else:
            world.lose(number)
    world.consume(records=False)
    world.rounds(world.process(), 10)
    added = sum(event.done.counts.pending_added for event in witness.of(ShardRoundRan))
    matched = sum(event.done.counts.pending_matched for event in witness.of(ShardRoundRan))
    settled = sum(event.settled for event in witness.of(RoundFinished))
    assert added == matched + settled + len(world.pending())
    assert added == 39
    assert settled > 0


def test_a_key_whose_leaving_was_cut_off_by_a_crash_is_told_by_the_next_process() -> None:
    calls = 1
    told_by_the_second = 0
    while True:
        world = World(shards=1)
        witness = witnessed(world)
        key = world.deliver(1)
        world.consume(records=False)
        mortal = Mortal(calls)
        with suppress(Crash):
            world.rounds(world.process(mortal, owner="first"), 4)
        was_written = any(witness.of(VerdictsWritten))
        had_left = any(witness.of(KeysLeft))
        if not mortal.is_dead:
            break
        world.rounds(world.process(owner="second"), 8)
        assert world.pending() == []
        told = [one.unique_key for event in witness.of(KeysLeft) for one in event.keys]
        is_durable = world.candidate(key)
        assert is_durable is not None
        assert is_durable.state is CandidateState.SETTLED
        if was_written and not had_left and told == [key]:
            told_by_the_second += 1
        calls += 1
    assert told_by_the_second > 0


def test_the_watermark_is_told_where_it_was_asked_for() -> None:
    world = World(grace=10.0)
    witness = witnessed(world)
    world.deliver(1)
    world.rounds(world.process(), 4, consume=False)
    asked = [event for event in witness.of(RoundFinished) if event.gate != "not asked"]
    assert {event.watermark_ms for event in witness.of(RoundFinished) if event.gate == "not asked"} == {None}
    assert asked
    assert all(event.watermark_ms is not None and event.watermark_ms > 0 for event in asked)


def test_a_repair_is_told_with_its_scope() -> None:
    world = World()
    witness = witnessed(world)
    world.lose(1)
    world.rounds(world.process(), 8)
    assert {event.scope for event in witness.of(RepairStepped)} == {EVERY_GROUP}
