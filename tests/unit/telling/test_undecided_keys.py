"""An UNKNOWN key is no calm while a witness keeps it so that should answer; what the configuration cannot decide is."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.policy.evidence import ConsumeMode, FilterKind, Lookup, OutboxRow, Presence, WitnessAnswer
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.judging.suspect import UNDECIDED, undecided_by
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.telling.account import account_of
from reconciler.telling.undecided_keys import (
    COUNTED_MAX,
    UndecidedKeys,
    beyond_set_up,
    handed_out,
    read_undecided,
    undecided_link,
)
from reconciler.words import said
from tests.unit.policy.judging import judged
from tests.unit.policy.world import World, key

WITHIN_MS = 300_000


def seen(world: World, *, within_ms: int = WITHIN_MS, handed_out_ms: int | None = WITHIN_MS) -> UndecidedKeys:
    """As `status` reads it now."""
    of, now_ms = world.subscriptions[0], world.clock.now_ms()
    return read_undecided(
        world.ledger.candidates, of, asked_ms=now_ms, within_ms=within_ms, handed_out_ms=handed_out_ms
    )


def first_seen_ms(world: World, number: int = 1) -> int:
    row = world.candidate(key(number))
    assert row is not None
    return row.first_seen_ms


# ---- a witness that should answer


@pytest.mark.parametrize("broken", ["inbox", "outbox", "index"])
def test_a_key_that_a_silent_witness_leaves_unknown_holds_the_time_after_five_minutes(broken: str) -> None:
    world = World()
    if broken == "index":
        world.broker.proves_horizon = False
    else:
        setattr(getattr(world, broken), "away", True)  # noqa: B010 - the name is a parameter
    world.lose(1)
    process = world.process()
    world.rounds(process, 60)
    assert seen(world).held is None, "just under five minutes after the first look"
    world.rounds(process, 12)
    found = seen(world)
    assert found.held is not None
    now_ms = world.clock.now_ms()
    link = undecided_link(found, asked_ms=now_ms)
    assert link.until_ms == first_seen_ms(world)
    assert key(1) in said(link.cause)
    account = account_of(found.subscription, [link], asked_ms=now_ms, within_ms=WITHIN_MS, is_given=False)
    assert account.late == (link.cause,)

    world.broker.proves_horizon, world.inbox.away, world.outbox.away = True, False, False
    world.rounds(process, 24)
    assert undecided_link(seen(world), asked_ms=now_ms).until_ms == now_ms


def test_five_minutes_count_from_the_end_that_a_verdict_names() -> None:
    """The broker's own check-back had its turn first: the witness went away afterwards."""
    world = World()
    world.broker.check_back_wait = 600.0
    world.lose(1)
    process = world.process()
    world.rounds(process, 100)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.verdict, undecided_by(row.evidence)[0]) == (Verdict.UNKNOWN, None)
    assert seen(world, within_ms=0).held is None
    world.broker.proves_horizon = False
    world.rounds(process, 30)
    assert seen(world).held is None
    world.rounds(process, 60)
    assert seen(world).held is not None


@pytest.mark.parametrize("ahead_seconds", [3_600.0, 86_400.0])
@pytest.mark.parametrize("is_upgraded", [True, False])
def test_a_key_that_waits_because_the_clock_of_redis_is_far_ahead_holds_the_time(
    ahead_seconds: float, monkeypatch: pytest.MonkeyPatch, *, is_upgraded: bool
) -> None:
    """It is undecided since a time of the future: it would be late only after that time, when it is decided."""
    world = World(shards=1, grace=10.0)
    world.redis_clock.wrong_by_seconds = ahead_seconds
    world.lose(1)
    process = world.process()
    world.rounds(process, 3)
    assert world.verdict(key(1)) == "UNKNOWN"
    if not is_upgraded:
        monkeypatch.setattr(world.ledger.candidates, "undecided_rows", lambda *_, **__: None)
    found, now_ms = seen(world), world.clock.now_ms()
    assert found.held_count == 1
    link = undecided_link(found, asked_ms=now_ms)
    account = account_of(found.subscription, [link], asked_ms=now_ms, within_ms=WITHIN_MS, is_given=False)
    assert account.late == (link.cause,)
    world.redis_clock.wrong_by_seconds = 0.0
    world.rounds(process, 12)
    assert len(world.broker.ends) == 1
    assert seen(world).held is None


# ---- what is configured


def in_the_weaker_mode(world: World) -> None:
    world.without_evidence()


def without_an_inbox(world: World) -> None:
    world.inbox.configured = False
    world.deliver(1)
    world.consume(effects=False)


def with_sql92(world: World) -> None:
    world.broker.group_filters = FilterKind.SQL92
    world.deliver(1)
    world.consume(effects=False)


def with_pop(world: World) -> None:
    world.inbox.configured = False
    world.broker.consumes = ConsumeMode.POP
    world.deliver(1)
    world.consume(effects=False)


@pytest.mark.parametrize("cannot", [in_the_weaker_mode, without_an_inbox, with_sql92, with_pop])
def test_what_the_configuration_cannot_decide_is_counted_and_holds_nothing(cannot: object) -> None:
    world = World()
    assert callable(cannot)
    cannot(world)
    if cannot is in_the_weaker_mode:
        world.announce(key(1))
    process = world.process()
    world.rounds(process, 200, consume=False)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.verdict, undecided_by(row.evidence)[0]) == (Verdict.UNKNOWN, Undecided.SET_UP)
    found = seen(world)
    assert (found.held, found.set_up_count, found.other_oldest_ms) == (None, 1, None)
    line = beyond_set_up(found)
    assert line is not None
    assert said(line).startswith("ORDERS/billing: 1 keys cannot be decided by what is configured")


@pytest.mark.parametrize("consume_mode", [ConsumeMode.POP, ConsumeMode.UNKNOWN])
@pytest.mark.parametrize("is_upgraded", [True, False])
def test_what_a_popping_group_was_handed_long_ago_is_told_and_holds_nothing(
    consume_mode: ConsumeMode, is_upgraded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.broker.consumes = consume_mode
    if not is_upgraded:
        monkeypatch.setattr(world.ledger.candidates, "undecided_rows", lambda *_, **__: None)
    world.deliver(1)
    world.consume(effects=False)
    process = world.process()
    world.rounds(process, 30, consume=False)
    row = world.candidate(key(1))
    assert row is not None
    assert undecided_by(row.evidence)[0] is Undecided.HANDED_OUT
    assert handed_out(seen(world)) is None, "the handler may still run"
    world.rounds(process, 60, consume=False)
    found = seen(world)
    assert (found.held, found.set_up_count, found.other_oldest_ms) == (None, 0, first_seen_ms(world))
    line = handed_out(found)
    assert line is not None
    assert said(line).startswith("1 messages were handed to ORDERS/billing and show no effect")
    assert handed_out(seen(world, handed_out_ms=None)) is None, "nobody is to be told"
    world.inbox.later.append((1, world.inbox_row("billing", key(1))))
    world.rounds(process, 30, consume=False)
    assert handed_out(seen(world)) is None
    assert (world.repair(key(1)), len(world.broker.copies)) == (None, 1)


@pytest.mark.parametrize("fault", ["inbox", "copies", "positions"])
def test_what_a_popping_group_was_handed_is_told_by_the_time_since_then_whatever_was_away_meanwhile(fault: str) -> None:
    """Each short fault began the time again: with one a day, no such message was ever told."""
    world = World()
    world.broker.consumes = ConsumeMode.POP
    world.deliver(1)
    world.consume(effects=False)
    process = world.process()

    def cause() -> Undecided | None:
        row = world.candidate(key(1))
        assert row is not None
        assert row.verdict is Verdict.UNKNOWN
        return undecided_by(row.evidence)[0]

    for _ in range(3):
        world.rounds(process, 24, consume=False)
        assert cause() is Undecided.HANDED_OUT
        world.inbox.away, world.broker.positions_known = fault == "inbox", fault != "positions"
        world.broker.unknown = {fault}
        world.rounds(process, 24, consume=False)
        assert cause() is Undecided.WITNESS
        world.inbox.away, world.broker.positions_known, world.broker.unknown = False, True, set()
    world.rounds(process, 24, consume=False)
    assert handed_out(seen(world)) is not None


def test_of_two_producer_groups_one_without_an_outbox_makes_it_the_configuration() -> None:
    world = World()
    world.announce(key(1))
    none = WitnessAnswer(witness="a", presence=Presence.UNKNOWN, detail="no outbox is configured", is_by_set_up=True)
    away = WitnessAnswer(witness="b", presence=Presence.UNKNOWN, detail="away")
    for answers, by in (((none,), Undecided.SET_UP), ((none, away), Undecided.WITNESS)):
        found: Lookup[OutboxRow] = Lookup(presence=Presence.UNKNOWN, answers=answers)
        answer = mock.Mock(side_effect=lambda _, keys, now_ms=None, found=found: dict.fromkeys(keys, found))
        world.outbox.look_up = answer  # type: ignore[method-assign]
        assert undecided_by(judged(world, key(1)).evidence)[0] is by


# ---- what is read


def note(world: World, number: int, evidence: dict[str, object]) -> None:
    shard = world.shard(key(number), world.subscriptions[0])
    by, since_ms = undecided_by(evidence)
    entry = VerdictEntry(
        unique_key=key(number),
        verdict=Verdict.UNKNOWN,
        evidence=evidence,
        first_seen_ms=1_000 + number,
        state=CandidateState.OPEN,
        wait_seconds=0.0,
        undecided_by=by,
        undecided_since_ms=None if by is None else since_ms or 1_000 + number,
    )
    world.ledger.candidates.record(shard, [entry])


@pytest.mark.parametrize(
    "evidence",
    [
        {"reason": "inbox: away"},  # by an earlier release
        {UNDECIDED: "witness"},
        {UNDECIDED: {"by": "somebody", "since_ms": 1}},
        {UNDECIDED: {"by": ["witness"], "since_ms": 1}},
    ],
)
def test_a_row_without_a_cause_that_can_be_read_counts_as_it_did(evidence: dict[str, object]) -> None:
    world = World()
    note(world, 1, evidence)
    world.clock.advance(3_600)
    found = seen(world)
    assert (found.held, found.set_up_count, found.other_oldest_ms) == (None, 0, 1_001)


def test_any_number_of_keys_that_the_set_up_cannot_decide_hides_no_newer_one_that_a_witness_holds() -> None:
    world = World()
    for number in range(1, COUNTED_MAX + 10):
        note(world, number, {UNDECIDED: {"by": "set-up", "since_ms": 1}})
    note(world, COUNTED_MAX + 20, {UNDECIDED: {"by": "witness", "since_ms": 1}})
    found = seen(world)
    assert found.held is not None
    assert (found.held.unique_key, found.held_count) == (key(COUNTED_MAX + 20), 1)
    assert (found.set_up_count, found.set_up_oldest_ms, found.is_complete) == (COUNTED_MAX, 1_001, False)


def test_of_several_held_keys_the_oldest_one_holds_the_time_whatever_holds_it() -> None:
    world = World()
    for number, by in ((4, "witness"), (2, "contradiction"), (3, "witness"), (1, "set-up")):
        note(world, number, {UNDECIDED: {"by": by, "since_ms": 1}})
    found = seen(world)
    assert found.held is not None
    assert (found.held.unique_key, found.held_count, found.other_oldest_ms) == (key(2), 3, 1_002)


def test_the_oldest_held_key_is_found_behind_pages_of_others() -> None:
    world = World()
    for number in range(1, PAGE_KEYS + 10):
        note(world, number, {UNDECIDED: {"by": "set-up", "since_ms": 1}})
    note(world, PAGE_KEYS + 20, {UNDECIDED: {"by": "witness", "since_ms": None}})
    note(world, PAGE_KEYS + 30, {UNDECIDED: {"by": "contradiction", "since_ms": world.clock.now_ms()}})
    found = seen(world)
    assert found.held is not None
    assert (found.held.unique_key, found.held_count, found.set_up_count) == (key(PAGE_KEYS + 20), 2, PAGE_KEYS + 9)
    assert found.is_complete
    counted = beyond_set_up(replace(found, is_complete=False))
    assert counted is not None
    assert "at least" in said(counted)
