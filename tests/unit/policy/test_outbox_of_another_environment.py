"""`outbox_url` leads to another environment's outbox: announced commits look rejected. What has no row there is not
accounted for until its half was looked for, and a half that nobody rolled back denies the rejection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.contract.properties import OUTBOX_MARK
from reconciler.contract.reasons import UNNAMED_LACKS_ROW
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import CandidateState, OutboxState
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.policy.dismissal import Dismissals
from reconciler.policy.evidence import Lookup, OutboxRow, Presence, StoredMessage, WitnessAnswer
from reconciler.policy.judging.selection import HALVES_MAX
from reconciler.policy.judging.suspect import undecided_by
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.ledger import Candidate
from reconciler.policy.round import ReconcileRound
from reconciler.telling.account import Account, account_of, unreviewed_link
from tests.unit.policy.fake_databases import FakeOutbox
from tests.unit.policy.world import ENVIRONMENT, World, key

#: What `status` allows by default, in milliseconds.
LIMIT_MS = 300_000


def world_beside() -> tuple[World, FakeOutbox]:
    """A world that reads the outbox of another environment, and the outbox of its own services."""
    world = World()
    right, world.outbox = world.outbox, FakeOutbox()
    world.broker.rollback_evident_after = 66.0
    return world, right


def commit_beside(world: World, right: FakeOutbox, number: int, *, mark: str = "") -> StoredMessage:
    """A half whose commit the world's outbox does not show; announced. END does not arrive."""
    half = world.broker.send_half(key(number))
    if mark:
        half = world.broker.halves[-1] = replace(half, properties={**half.properties, OUTBOX_MARK: mark})
    row = world.commit_locally(key(number), half)
    del world.outbox.rows[key(number)]
    right.rows[key(number)] = row
    world.announce(key(number))
    return half


def row_of(world: World, number: int = 1) -> Candidate:
    row = world.candidate(key(number))
    assert row is not None
    return row


def account(world: World) -> Account:
    """What `status` would say of reviews alone."""
    asked_ms = world.clock.now_ms()
    found = world.ledger.candidates.unreviewed_rows(world.subscriptions[0], most=10_000)
    link = unreviewed_link(found, asked_ms=asked_ms)
    return account_of(world.subscriptions[0], [link], asked_ms=asked_ms, within_ms=LIMIT_MS, is_given=False)


def rejected(world: World, *, consume: bool = True) -> ReconcileRound:
    """The first verdict on what was announced."""
    process = world.process()
    world.rounds(process, 4, consume=consume)
    assert row_of(world).verdict is Verdict.REJECTED
    return process


def contradicted(world: World, number: int = 1) -> None:
    row = row_of(world, number)
    assert (row.verdict, row.state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert undecided_by(row.evidence)[0] is Undecided.CONTRADICTION
    assert reason_in(row.evidence).code is UNNAMED_LACKS_ROW


# ---- calm is claimed only while it is proved


@pytest.mark.parametrize("mark", ["", "the service's own outbox"])
def test_a_key_without_a_row_is_not_accounted_for_until_its_half_was_looked_for(mark: str) -> None:
    world, right = world_beside()
    half = commit_beside(world, right, 1, mark=mark)
    world.broker.put_back(half)
    process = rejected(world)
    for _ in range(16):
        world.rounds(process, 1)
        is_rejected = row_of(world).verdict is Verdict.REJECTED
        is_told = account(world).until_ms == row_of(world).first_seen_ms
        assert is_told is is_rejected
    assert row_of(world).verdict is Verdict.UNKNOWN


def test_a_forged_key_moves_the_time_by_a_minute_or_two_and_is_never_late() -> None:
    world, _ = world_beside()
    world.announce(key(1))
    process = rejected(world)
    seen = []
    for _ in range(60):
        world.rounds(process, 1)
        assert account(world).late == ()
        seen.append(account(world).until_ms == world.clock.now_ms())
    assert seen.index(True) <= 24, "two minutes"
    assert all(seen[seen.index(True) :])
    assert row_of(world).state is CandidateState.SETTLED


def test_a_broker_that_does_not_answer_reviews_nothing() -> None:
    world, _ = world_beside()
    world.announce(key(1))
    process = rejected(world)
    world.broker.unknown.add("halves")
    world.rounds(process, 70)
    assert [fact.code.name for fact in account(world).late] == ["account.not-reviewed"]
    world.broker.unknown.clear()
    world.rounds(process, 14)
    assert account(world).until_ms == world.clock.now_ms()


@pytest.mark.parametrize("silent", ["an index that is not proved", "an outbox that is away"])
def test_a_witness_that_proves_nothing_reviews_nothing(silent: str) -> None:
    world, _ = world_beside()
    world.announce(key(1))
    process = rejected(world)
    world.broker.proves_horizon = silent != "an index that is not proved"
    world.outbox.away = silent == "an outbox that is away"
    world.rounds(process, 40)
    assert account(world).until_ms == row_of(world).first_seen_ms


def test_one_of_two_outboxes_that_does_not_answer_reviews_nothing() -> None:
    world, right = world_beside()
    open_half(world, commit_beside(world, right, 1))
    process = rejected(world)
    answers = [
        WitnessAnswer(witness=name, presence=presence, detail=name)
        for name, presence in (("first", Presence.ABSENT), ("second", Presence.UNKNOWN))
    ]
    said: Lookup[OutboxRow] = Lookup(presence=Presence.UNKNOWN, answers=tuple(answers))
    look_up = world.outbox.look_up
    world.outbox.look_up = lambda topic, not_before_ms, *, now_ms=None: dict.fromkeys(not_before_ms, said)  # type: ignore[method-assign]
    world.rounds(process, 40)
    assert row_of(world).verdict is Verdict.REJECTED
    assert account(world).until_ms == row_of(world).first_seen_ms
    world.outbox.look_up = look_up  # type: ignore[method-assign]
    world.rounds(process, 14)
    contradicted(world)


def test_a_key_that_was_reviewed_stays_so_whoever_is_away_at_its_next_question() -> None:
    world, _ = world_beside()
    world.announce(key(1))
    process = rejected(world)
    world.rounds(process, 30)
    assert account(world).until_ms == world.clock.now_ms()
    world.outbox.away = True
    world.broker.unknown.add("halves")
    for _ in range(100):
        world.rounds(process, 1)
        assert account(world).until_ms == world.clock.now_ms()


def test_a_flood_of_forged_keys_is_late_until_reviews_have_kept_up_and_each_looks_for_ten_halves() -> None:
    world, _ = world_beside()
    batches = 70
    world.announce(*(key(number) for number in range(1, 1 + batches * HALVES_MAX)))
    process = rejected(world)
    world.rounds(process, 8)
    rounds, late = 0, 0
    while account(world).until_ms != world.clock.now_ms():
        before = len(world.broker.look_ups)
        world.rounds(process, 1)
        assert len(world.broker.look_ups) - before <= HALVES_MAX
        rounds, late = rounds + 1, late + bool(account(world).late)
        assert rounds < batches + 20
        is_under_way = bool(world.broker.look_ups) and rounds < batches
        assert not (is_under_way and process.may_rest), "rounds go on"
    assert late > 5
    assert process.may_rest


def test_a_row_that_comes_late_does_not_wait_for_the_end_of_a_flood() -> None:
    world, _ = world_beside()
    forged = 70 * HALVES_MAX
    lost = world.lose(1)
    world.broker.put_back(world.broker.halves[0])
    row = world.outbox.rows.pop(lost)
    world.announce(*(key(number) for number in range(2, 2 + forged)))
    process = rejected(world)
    world.outbox.rows[lost] = row
    world.rounds(process, 40)
    assert row_of(world).loss_verdict is Verdict.LOST_CONFIRM
    assert account(world).until_ms != world.clock.now_ms(), "the flood is not over"


# ---- a half without a name


def open_half(world: World, half: StoredMessage) -> None:
    """Its broker has asked, and nobody has decided."""
    world.broker.put_back(half)


def delivered(world: World, half: StoredMessage) -> None:
    """Its message was committed at the broker; the group has not come so far."""
    world.broker.commit(half)


@pytest.mark.parametrize("become", [open_half, delivered])
def test_a_half_that_nobody_rolled_back_denies_the_rejection(
    become: Callable[[World, StoredMessage], None],
) -> None:
    world, right = world_beside()
    half = commit_beside(world, right, 1)
    become(world, half)
    process = rejected(world, consume=False)
    world.rounds(process, 30, consume=False)
    contradicted(world)
    looked = len(world.broker.look_ups)
    world.rounds(process, 30, consume=False)
    contradicted(world)
    assert len(world.broker.look_ups) == looked, "brokers are not asked again"
    assert (world.broker.ends, world.broker.republished) == ([], [])


def test_once_the_url_is_corrected_the_loss_is_repaired_once() -> None:
    world, right = world_beside()
    open_half(world, commit_beside(world, right, 1))
    process = rejected(world)
    world.rounds(process, 30)
    contradicted(world)
    world.outbox = right
    world.rounds(world.process(owner="reconciler-2"), 40)
    assert (row_of(world).loss_verdict, row_of(world).verdict) == (Verdict.LOST_CONFIRM, Verdict.CONSUMED)
    assert len(world.broker.ends) == 1


def test_a_phantom_that_its_service_rolled_back_stays_rejected_and_is_no_alarm() -> None:
    """Announced inside a transaction that failed later. Its half has no younger copy: somebody ended it."""
    world, _ = world_beside()
    world.broker.send_half(key(1))
    world.announce(key(1))
    process = rejected(world)
    for _ in range(80):
        world.rounds(process, 1)
        assert account(world).late == ()
    assert (row_of(world).verdict, row_of(world).state) == (Verdict.REJECTED, CandidateState.SETTLED)
    assert account(world).until_ms == world.clock.now_ms()
    assert (world.broker.ends, world.broker.republished) == ([], [])


def test_a_half_that_is_too_young_to_show_its_end_is_waited_for() -> None:
    world, right = world_beside()
    world.broker.rollback_evident_after = 200.0
    half = commit_beside(world, right, 1)
    process = rejected(world)
    world.rounds(process, 28)
    assert account(world).until_ms == row_of(world).first_seen_ms
    open_half(world, half)
    world.rounds(process, 14)
    contradicted(world)


def test_where_a_broker_cannot_show_a_rollback_a_half_denies_the_rejection() -> None:
    """Up to 4.2, and where RocksDB keeps halves."""
    world, right = world_beside()
    world.broker.rollback_evident_after = None
    commit_beside(world, right, 1)
    process = rejected(world)
    world.rounds(process, 30)
    contradicted(world)


def test_a_message_that_takes_effect_ends_the_contradiction() -> None:
    world, right = world_beside()
    delivered(world, commit_beside(world, right, 1))
    process = world.process()
    world.rounds(process, 34, consume=False)
    contradicted(world)
    world.rounds(process, 14)
    assert (row_of(world).verdict, row_of(world).state) == (Verdict.CONSUMED, CandidateState.SETTLED)


def test_a_person_ends_a_contradiction_of_a_half_without_a_name() -> None:
    world, right = world_beside()
    open_half(world, commit_beside(world, right, 1))
    process = rejected(world)
    world.rounds(process, 30)
    contradicted(world)
    life = world.ledger.reports.life(ENVIRONMENT, key(1))
    seen = KeyInLedger(candidates=life.candidates, repairs=life.repairs)
    dismissals = Dismissals(closings=world.ledger.closings, configured=world.subscriptions)
    assert dismissals.dismiss(seen, group=None, by="anna", reason="rolled back") == {"billing": "dismissed"}
    world.rounds(process, 60)
    assert row_of(world).state is CandidateState.SETTLED
    assert world.broker.ends == []


def test_a_tombstone_ends_the_contradiction() -> None:
    world, right = world_beside()
    half = commit_beside(world, right, 1)
    open_half(world, half)
    process = rejected(world)
    world.rounds(process, 30)
    contradicted(world)
    world.commit_locally(key(1), half, state=OutboxState.ROLLED_BACK)
    world.rounds(process, 30)
    assert (row_of(world).verdict, row_of(world).state) == (Verdict.REJECTED, CandidateState.SETTLED)


def test_a_half_of_strangers_denies_nothing() -> None:
    world, _ = world_beside()
    world.broker.put_back(world.broker.send_half(key(1), group="strangers"))
    world.announce(key(1))
    process = rejected(world)
    world.rounds(process, 60)
    assert (row_of(world).verdict, row_of(world).state) == (Verdict.REJECTED, CandidateState.SETTLED)
