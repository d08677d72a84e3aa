"""ports.Candidates on every backend: closed rows whose databases are asked once more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.row_rules import ASK_AGAIN_MS_MAX
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.ledger import Candidate, VerdictEntry
from tests.contract.ledger.conftest import BACKENDS, World
from tests.contract.ledger.rows import entry, key, shard, subscription
from tests.unit.contract.keys import OF_CLIENTS

OPEN, QUARANTINED, SETTLED = CandidateState.OPEN, CandidateState.QUARANTINED, CandidateState.SETTLED


def rejected(number: int, *, ask_again_seconds: float | None = 60.0) -> VerdictEntry:
    return entry(number, Verdict.REJECTED, SETTLED, ask_again_seconds=ask_again_seconds)


def shown(number: int, *, ask_again_seconds: float | None = 60.0) -> VerdictEntry:
    return entry(number, Verdict.DELIVERED_NOT_APPLIED, QUARANTINED, ask_again_seconds=ask_again_seconds)


def due(world: World, *, limit: int = 10) -> list[str]:
    found = world.ledger.candidates.to_ask_again(subscription(world.environment), limit=limit)
    return [row.unique_key for row in found]


def row_of(world: World, number: int) -> Candidate:
    return world.ledger.candidates.of_keys(subscription(world.environment), [key(number)])[key(number)]


@pytest.mark.parametrize("has_row", [False, True])
@pytest.mark.parametrize(("offset_ms", "is_due"), [(-1, False), (0, True)])
def test_a_closed_row_is_asked_again_when_its_time_has_come(
    world: World, offset_ms: int, is_due: bool, has_row: bool
) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    if has_row:
        candidates.record(of, [entry(1), entry(2)])
        assert row_of(world, 1).ask_again_at_ms is None
    candidates.record(of, [rejected(1), shown(2)])
    assert row_of(world, 1).ask_again_at_ms == world.clock.now_ms() + 60_000
    world.clock.advance(60 + offset_ms / 1000)
    assert sorted(due(world)) == ([key(1), key(2)] if is_due else [])


def test_rows_are_asked_again_longest_due_first_and_no_more_than_asked_for(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [rejected(n, ask_again_seconds=100 - n) for n in range(30)])
    world.clock.advance(80)
    assert due(world, limit=3) == [key(29), key(28), key(27)]
    assert due(world, limit=99) == [key(n) for n in range(29, 19, -1)]


@pytest.mark.parametrize("world", BACKENDS[1:], indirect=True)
def test_rows_without_a_key_take_no_place_of_others(world: World) -> None:
    """A person wrote them; they cannot be asked for, and nothing puts them off."""
    candidates, of = world.ledger.candidates, shard(world.environment)
    no_keys = [
        "",
        "soon",
        key(1)[:15],
        key(1)[:-1] + ".",
        " " + key(1)[1:],
        key(1) + "\n",
        key(1) + "\r",
        key(1) + "'",
    ]
    candidates.record(of, [replace(rejected(1), unique_key=one) for one in no_keys])
    candidates.record(of, [replace(entry(1), unique_key=f"open {one}") for one in no_keys])
    world.clock.advance(1)
    candidates.record(of, [rejected(2), rejected(3), entry(4), entry(5, Verdict.LOST_CONFIRM)])
    world.clock.advance(60)
    assert sorted(due(world, limit=3)) == [key(2), key(3)]
    opened = candidates.open_due(of.subscription, shards=[of.number], limit=3)
    assert sorted(row.unique_key for row in opened) == [key(4), key(5)]
    assert [row.unique_key for row in candidates.open_losses(of.subscription, limit=1)] == [key(5)]


@pytest.mark.parametrize("one", [key(0xABC).lower(), *OF_CLIENTS, "a" * 16, "Z" * 64, "order-2026_17-debit"])
def test_the_key_of_any_client_takes_its_place(world: World, one: str) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [replace(rejected(1), unique_key=one), replace(entry(2), unique_key=f"{one[:-1]}-")])
    world.clock.advance(60)
    assert due(world, limit=3) == [one]
    opened = candidates.open_due(of.subscription, shards=[of.number], limit=3)
    assert [row.unique_key for row in opened] == [f"{one[:-1]}-"]
    assert [row.damage for row in candidates.of_keys(of.subscription, [one]).values()] == [None]


def test_keys_that_differ_in_case_alone_have_rows_of_their_own(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    upper, lower = key(0xABC), key(0xABC).lower()
    candidates.record(of, [replace(entry(1, Verdict.LOST_CONFIRM), unique_key=upper)])
    candidates.record(of, [replace(entry(1, Verdict.CONSUMED, SETTLED), unique_key=lower)])
    found = candidates.of_keys(of.subscription, [upper, lower])
    assert {one: found[one].verdict for one in found} == {upper: Verdict.LOST_CONFIRM, lower: Verdict.CONSUMED}


def test_a_question_that_waits_is_due_once_the_clock_of_the_ledger_was_set_back_by_days(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [rejected(1), rejected(2), rejected(3)])
    world.clock.advance(120)
    candidates.ask_later(of.subscription, [key(2)], seconds=ASK_AGAIN_MS_MAX / 1000)
    world.clock.step_wall(40 * 86_400)
    candidates.ask_later(of.subscription, [key(1)], seconds=60)
    world.clock.step_wall(-40 * 86_400)
    assert due(world) == [key(3), key(1)], "of the longest pause nobody is asked before its end"
    assert due(world, limit=1) == [key(3)], "what is due comes first"


def test_a_final_verdict_is_not_asked_again_whatever_was_said_before(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [rejected(1), shown(2), shown(3), rejected(4, ask_again_seconds=None)])
    candidates.record(of, [rejected(1, ask_again_seconds=None), entry(2, Verdict.CONSUMED, SETTLED)])
    candidates.reopen(row_of(world, 3))
    world.clock.advance(1e6)
    assert due(world) == []


def test_putting_off_changes_nothing_but_the_time(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [rejected(1), rejected(2), rejected(3)])
    before = row_of(world, 1)
    world.clock.advance(60)
    candidates.ask_later(of.subscription, [key(1)], seconds=120.5)
    candidates.ask_later(of.subscription, [key(2), key(9)], seconds=None)
    candidates.ask_later(of.subscription, [], seconds=None)
    assert due(world) == [key(3)]
    after = row_of(world, 1)
    assert after.ask_again_at_ms == world.clock.now_ms() + 120_500
    assert (after.updated_at_ms, after.next_at_ms, after.attempts, after.evidence) == (
        before.updated_at_ms,
        before.next_at_ms,
        before.attempts,
        before.evidence,
    )
    world.clock.advance(1e6)
    assert due(world) == [key(3), key(1)]


def unreviewed(world: World, *, most: int = 10) -> tuple[int, str | None]:
    found = world.ledger.candidates.unreviewed_rows(subscription(world.environment), most=most)
    return found.count, None if found.oldest is None else found.oldest.unique_key


def test_a_rejected_row_is_unreviewed_until_it_is_put_off(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    assert unreviewed(world) == (0, None)
    first = replace(rejected(2), first_seen_ms=rejected(2).first_seen_ms - 5)
    candidates.record(of, [rejected(1), first, rejected(3), rejected(4, ask_again_seconds=None), shown(5), entry(6)])
    candidates.record(of, [dismissed(7), entry(8, Verdict.CONSUMED, SETTLED)])
    assert unreviewed(world) == (3, key(2))
    assert unreviewed(world, most=2)[0] == 2
    world.clock.advance(61)
    assert unreviewed(world) == (3, key(2))
    candidates.ask_later(of.subscription, [key(2)], seconds=60)
    candidates.ask_later(of.subscription, [key(3)], seconds=None)
    assert unreviewed(world) == (1, key(1))
    candidates.reopen(row_of(world, 1))
    assert unreviewed(world) == (0, None)


def test_a_clock_of_the_ledger_that_was_set_back_makes_no_reviewed_row_unreviewed(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    world.clock.step_wall(3_600)
    candidates.record(of, [rejected(1)])
    world.clock.step_wall(-3_600)
    candidates.ask_later(of.subscription, [key(1)], seconds=90)
    assert unreviewed(world) == (0, None)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_row_that_stays_unreviewed_is_put_off_behind_all_that_are_due(world: World, seconds: float) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [rejected(1), rejected(2)])
    world.clock.advance(600)
    candidates.ask_later(of.subscription, [key(1)], seconds=seconds, stays_unreviewed=True)
    assert unreviewed(world)[0] == 2
    after = row_of(world, 1)
    assert (after.updated_at_ms, after.ask_again_at_ms) == (
        world.clock.now_ms(),
        world.clock.now_ms() + round(seconds * 1000),
    )
    assert (after.verdict, after.state, after.attempts) == (Verdict.REJECTED, SETTLED, 1)
    assert due(world) == ([key(2), key(1)] if seconds == 0 else [key(2)])
    world.clock.advance(60)
    assert due(world) == [key(2), key(1)]


def test_unreviewed_rows_of_others_are_their_own(world: World) -> None:
    other = shard(world.environment, group="shipping")
    world.ledger.candidates.record(other, [rejected(1)])
    assert unreviewed(world) == (0, None)


@pytest.mark.parametrize("world", BACKENDS[1:], indirect=True)
def test_a_row_without_a_key_is_never_reviewed_and_holds_nothing(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [replace(rejected(1), unique_key="soon")])
    assert unreviewed(world) == (0, None)


def test_a_verdict_that_is_taken_back_is_looked_at_in_the_next_round_and_keeps_what_it_said(world: World) -> None:
    candidates, of, now_in = world.ledger.candidates, shard(world.environment, 1), shard(world.environment, 2)
    candidates.record(of, [entry(1, Verdict.LOST_CONFIRM), entry(2)])
    candidates.record(of, [shown(1), rejected(2)])
    before = row_of(world, 1)
    candidates.take_back(now_in, [key(1), key(2), key(3)])
    candidates.take_back(of, [key(1)])  # it is open already
    candidates.take_back(of, [])
    found = candidates.open_due(of.subscription, shards=[now_in.number], limit=10)
    assert sorted(row.unique_key for row in found) == [key(1), key(2)]
    after = row_of(world, 1)
    assert (after.state, after.shard, after.ask_again_at_ms) == (OPEN, 2, None)
    assert (after.verdict, after.loss_verdict, after.evidence, after.attempts) == (
        before.verdict,
        Verdict.LOST_CONFIRM,
        before.evidence,
        before.attempts,
    )
    candidates.record(now_in, [entry(2, Verdict.LOST_CONFIRM)])
    assert row_of(world, 2).loss_verdict is Verdict.LOST_CONFIRM


def test_what_a_person_has_dismissed_meanwhile_is_neither_taken_back_nor_asked_again(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [shown(1)])
    world.clock.advance(60)
    assert due(world) == [key(1)]
    candidates.record(of, [entry(1, Verdict.DELIVERED_NOT_APPLIED, SETTLED, evidence={"dismissed_by": "ann"})])
    dismissed = row_of(world, 1)
    candidates.take_back(of, [key(1)])
    candidates.ask_later(of.subscription, [key(1)], seconds=0.0)
    assert row_of(world, 1) == dismissed
    assert due(world) == []


def dismissed(number: int, *, ask_again_seconds: float | None = 60.0) -> VerdictEntry:
    evidence: dict[str, object] = {"dismissed_by": "ann"}
    return entry(number, Verdict.DEAD_LETTERED, SETTLED, evidence=evidence, ask_again_seconds=ask_again_seconds)


def woken(number: int) -> VerdictEntry:
    return entry(number, Verdict.COLLISION, QUARANTINED, evidence={"reason": "took effect"})


def test_a_dismissed_row_is_asked_again_and_put_off_and_never_opened(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(n) for n in range(1, 5)])
    candidates.record(of, [dismissed(1), dismissed(2), dismissed(3, ask_again_seconds=None), shown(4)])
    world.clock.advance(60)
    assert sorted(due(world)) == [key(1), key(2), key(4)]
    before = row_of(world, 1)
    candidates.take_back(of, [key(1)])
    assert row_of(world, 1) == before
    candidates.ask_later(of.subscription, [key(1), key(3)], seconds=60)
    candidates.ask_later(of.subscription, [key(2)], seconds=None)
    assert due(world) == [key(4)]
    world.clock.advance(60)
    assert sorted(due(world)) == [key(1), key(4)]


def test_a_dismissed_row_that_took_effect_waits_for_a_person_in_one_step(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(1, Verdict.LOST_CONFIRM), entry(2), entry(3), entry(4)])
    candidates.record(of, [dismissed(1), shown(2), entry(3, Verdict.CONSUMED, SETTLED)])
    before = [row_of(world, n) for n in range(1, 5)]
    world.clock.advance(60)
    assert list(candidates.wake_dismissed(of.subscription, [woken(n) for n in (5, 4, 3, 2, 1)])) == [key(1)]
    assert list(candidates.wake_dismissed(of.subscription, [woken(1)])) == [], "another process was first"
    assert list(candidates.wake_dismissed(of.subscription, [])) == []
    assert [row_of(world, n) for n in range(2, 5)] == before[1:]
    row = row_of(world, 1)
    assert (row.state, row.verdict, row.loss_verdict) == (QUARANTINED, Verdict.COLLISION, Verdict.LOST_CONFIRM)
    assert (row.evidence, row.ask_again_at_ms, row.attempts) == ({"reason": "took effect"}, None, before[0].attempts)
    assert row.updated_at_ms == before[0].updated_at_ms + 60_000
    other = shard(world.environment, group="shipping").subscription
    assert list(candidates.wake_dismissed(other, [woken(1)])) == []


def test_rows_of_other_groups_topics_and_environments_are_left_to_their_own_rounds(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    others = [
        shard(world.environment, group="shipping"),
        shard(world.environment, topic="ORDERS2"),
        shard(world.environment + "x"),
    ]
    candidates.record(of, [rejected(1, ask_again_seconds=0.0)])
    for other in others:
        assert candidates.to_ask_again(other.subscription, limit=10) == []
        candidates.take_back(other, [key(1)])
        candidates.ask_later(other.subscription, [key(1)], seconds=None)
    assert due(world) == [key(1)]
