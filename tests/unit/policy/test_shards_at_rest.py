"""A shard at rest has no round, and nothing of it is forgotten: a look tells whether a round would move anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, RepairState
from reconciler.contract.unique_key import shard_of
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.events import RoundFinished, RoundsVoided
from reconciler.policy.evidence import Watermark
from reconciler.policy.ports.rounds import NextRound, RoundDone
from reconciler.policy.round import ReconcileRound, RoundReport
from reconciler.policy.shard_rounds import REST_SECONDS_MAX, SMALL_ROUND_MEMBERS
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from tests.unit.policy.world import ENVIRONMENT, World, key


def resting(**about: object) -> tuple[World, ReconcileRound]:
    """One shard whose last round was this process'."""
    world = World(shards=1, **about)  # type: ignore[arg-type]
    process = world.process()
    world.rounds(process, 1)
    return world, process


def rounds_of(world: World) -> int:
    """Rounds that the memory of shard 0 has had."""
    return world.shards.state(Shard(subscription=world.subscriptions[0], number=0)).generation


def counting(asked: list[str], name: str, ask: Callable[..., object]) -> Callable[..., object]:
    def counted(*arguments: object, **about: object) -> object:
        asked.append(name)
        return ask(*arguments, **about)

    return counted


def event_of(reports: list[RoundReport]) -> RoundFinished:
    event = reports[0].event
    assert event is not None
    return event


def test_a_shard_at_rest_has_no_round_and_counts_as_one_that_had() -> None:
    world, process = resting()
    event = event_of(world.rounds(process, 5))
    assert rounds_of(world) == len(world.ledger.rows.rounds) == 1
    assert (event.shards_run, event.shards_skipped, event.announced) == (1, 0, 0)
    assert event.at_ms == world.redis_clock.now_ms(), "it was seen just now"
    assert not event.problems


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world, _: world.announce(key(1)), id="announced"),
        pytest.param(lambda world, _: world.shards.record(world.subscriptions[0], [key(1)], shards=1), id="consumed"),
        pytest.param(lambda world, _: world.rounds(world.process(), 1), id="a round of the same owner elsewhere"),
        pytest.param(
            lambda world, _: setattr(world.redis_clock, "wrong_by_seconds", -3_600),
            id="the clock is behind the last round",
        ),
        pytest.param(lambda world, _: world.clock.advance(REST_SECONDS_MAX), id="a minute later"),
    ],
)
def test_a_changed_shard_has_a_round(change: Callable[[World, ReconcileRound], object]) -> None:
    world, process = resting()
    change(world, process)
    before = rounds_of(world)
    world.rounds(process, 1, consume=False)
    assert rounds_of(world) == before + 1


def test_what_becomes_due_in_a_shard_at_rest_is_judged_and_repaired() -> None:
    world, process = resting()
    lost = world.lose(1)
    world.rounds(process, 1)
    before = rounds_of(world)
    world.rounds(process, 9)
    assert rounds_of(world) == before + 3, "one with the consumption, two until its set is forgotten"
    repair = world.repair(lost, EVERY_GROUP)
    assert repair is not None
    assert repair.state is RepairState.DONE
    assert [k for _, k in world.deliveries] == [lost]


def test_a_memory_that_was_lost_at_rest_opens_an_outage() -> None:
    world, process = resting()
    world.rounds(process, 2)
    world.shards.wipe()
    world.rounds(process, 1)
    outage = world.ledger.outages.current(ENVIRONMENT)
    assert outage is not None
    assert outage.reason == "MEMORY_LOST"


def test_a_memory_that_fell_back_at_rest_has_its_undone_round_voided() -> None:
    world, process = resting()
    saved = world.shards.save()
    world.announce(key(1))
    world.rounds(process, 3, consume=False)
    world.shards.restore(saved)
    world.rounds(process, 1, consume=False)
    (voided,) = world.events.of(RoundsVoided)
    assert (voided.rounds, rounds_of(world)) == (1, 2)


def test_a_subscription_at_rest_writes_nothing_into_the_ledger(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'ledger.db'}", must_exist=False)
    ledger_metadata.create_all(engine)
    world, begun = World(), list[str]()
    world.ledger = SqlLedger(engine)  # type: ignore[assignment]
    process = world.process()
    world.rounds(process, 4)
    sa.event.listen(engine, "before_cursor_execute", lambda *told: begun.append(told[2]))
    world.rounds(process, 1)
    assert begun
    assert all(statement.startswith(("SELECT", "BEGIN DEFERRED")) for statement in begun)
    engine.dispose()


@pytest.mark.parametrize(("pause", "asks"), [(5.0, False), (60.0, True)], ids=["a turn", "longer than a lease"])
def test_a_changed_shard_whose_last_round_was_ours_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, pause: float, asks: bool
) -> None:
    """Another process may have had it since a lease was over: then lease, state and ledger are asked again."""
    world, process = resting()
    asked: list[str] = []
    for part, name in ((world.shards, "state"), (world.shards, "take"), (world.ledger.rounds, "last")):
        monkeypatch.setattr(part, name, counting(asked, name, getattr(part, name)))
    world.announce(key(1))
    world.rounds(process, 1, every=pause, consume=False)
    assert set(asked) == ({"take", "state", "last"} if asks else set())
    assert rounds_of(world) == 2


@pytest.mark.parametrize("members", [SMALL_ROUND_MEMBERS, SMALL_ROUND_MEMBERS + 1])
def test_small_rounds_are_sent_and_stored_together_and_a_large_one_alone(
    monkeypatch: pytest.MonkeyPatch, members: int
) -> None:
    """Redis serves nobody else before it is through with what was sent together."""
    world = World(shards=3)
    process = world.process()
    world.rounds(process, 1)
    numbers = [n for n in range(5 * members) if shard_of(key(n), 3) == 0][:members]
    world.shards.record(world.subscriptions[0], [key(n) for n in numbers], shards=3)
    for number in (1, 2):
        one = next(n for n in range(100) if shard_of(key(n), 3) == number)
        world.shards.record(world.subscriptions[0], [key(one)], shards=3)
    sent, stored = list[int](), list[int]()
    take, store = world.shards.take_small_rounds, world.ledger.rounds.store

    def taking(rounds: Sequence[NextRound]) -> object:
        sent.append(len(rounds))
        return take(rounds)

    def storing(*done: RoundDone) -> None:
        stored.append(len(done))
        store(*done)

    monkeypatch.setattr(world.shards, "take_small_rounds", taking)
    monkeypatch.setattr(world.ledger.rounds, "store", storing)
    world.rounds(process, 1, consume=False)
    assert (sent, stored) == (([3], [3]) if members == SMALL_ROUND_MEMBERS else ([2], [2, 1]))


def test_a_small_round_that_did_not_run_is_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world, process = resting()
    world.announce(key(1))
    monkeypatch.setattr(world.shards, "take_small_rounds", lambda of: {})
    (report,) = world.rounds(process, 1, consume=False)
    assert (event_of([report]).announced, rounds_of(world)) == (1, 2)


def test_a_lease_is_kept_by_looks_alone_and_the_other_process_stays_away() -> None:
    world, process = resting()
    other = world.process(owner="reconciler-2")
    for _ in range(10):
        world.rounds(process, 1)
        world.look(other)
        report = other.run(world.subscriptions[0])
        assert report.event is not None
        assert report.event.shards_run == 0
    assert rounds_of(world) <= 2, "one a minute"


def test_a_shard_whose_owner_died_has_a_round_of_another_one_once_the_lease_is_over() -> None:
    world, _ = resting()
    other = world.process(owner="reconciler-2")
    world.rounds(other, 2)
    assert rounds_of(world) == 1
    world.rounds(other, 1)
    assert rounds_of(world) == 2


def test_keys_of_a_lease_that_was_lost_in_the_middle_of_a_turn_are_left_to_its_new_owner() -> None:
    world, process = resting()
    lost = world.lose(1)
    world.rounds(process, 1)
    world.clock.advance(30)
    world.look(process)
    shard = Shard(subscription=world.subscriptions[0], number=0)
    world.shards.release(shard, token="reconciler-1")
    assert world.shards.take(shard, token="reconciler-2", lease_seconds=60)
    process.run(world.subscriptions[0])
    assert world.verdict(lost) is None


def test_keys_of_a_shard_that_another_owner_took_after_its_round_are_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, process = resting()
    lost, shard = world.lose(1), Shard(subscription=world.subscriptions[0], number=0)
    watermark = world.broker.watermark

    def taken_meanwhile(subscription: Subscription) -> Watermark:
        """The gate is asked between the rounds of the shards and the first page of keys."""
        world.shards.release(shard, token="reconciler-1")
        assert world.shards.take(shard, token="reconciler-2", lease_seconds=60)
        return watermark(subscription)

    world.rounds(process, 1)
    monkeypatch.setattr(world.broker, "watermark", taken_meanwhile)
    world.rounds(process, 1, every=31.0)
    assert world.verdict(lost) is None
    assert world.shards.take(shard, token="reconciler-2", lease_seconds=60), "the gate was asked"
    monkeypatch.undo()
    world.rounds(world.process(owner="reconciler-2"), 1)
    assert world.verdict(lost) == "LOST_CONFIRM"
