"""What was closed for want of a row is asked for again: a replica may have been behind, a person may not know yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from reconciler.commands.status.double_effects import double_effects
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.dismissal import Dismissals, effect_found
from reconciler.policy.evidence import Lookup, OutboxRow, Presence, WitnessAnswer
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.judging.absence_review import ASK_AGAIN_SECONDS_MAX, pause_seconds
from reconciler.policy.judging.selection import SelectionRules
from reconciler.policy.judging.suspect import Suspect, suspect_of
from reconciler.policy.judging.waits import ASK_AGAIN_SECONDS_MIN
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.ledger import Candidate, RepairChange, VerdictEntry
from reconciler.policy.round import ReconcileRound
from reconciler.words import said
from tests.simulation.outbox_table import TableRow
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

HOUR = 3_600.0


class Statements:
    """How many keys each statement to a witness asked for, from now on."""

    def __init__(self, world: World) -> None:
        self.outbox: list[int] = []
        self.inbox: list[int] = []
        self._count(world.outbox, self.outbox)
        self._count(world.inbox, self.inbox)

    @staticmethod
    def _count(witness: Any, sizes: list[int]) -> None:
        look_up = witness.look_up

        def counted(of: object, keys: Sequence[str], **clock: int | None) -> object:
            sizes.append(len(keys))
            return look_up(of, keys, **clock)

        witness.look_up = counted


def unseen_commit(world: World, number: int = 1) -> tuple[ReconcileRound, TableRow]:
    """A lost message whose outbox row no reader saw in the first look: the row, to be shown later."""
    lost = world.lose(number)
    row = world.outbox.rows.pop(lost)
    process = world.process()
    world.rounds(process, 6)
    assert world.verdict(lost) == "REJECTED"
    assert world.pending() == []
    return process, row


def acknowledged(world: World) -> ReconcileRound:
    """Delivered, and no reader sees the effect: a person must look."""
    world.deliver(1)
    world.consume(effects=False)
    process = world.process()
    world.rounds(process, 6)
    assert world.verdict(key(1)) == "DELIVERED_NOT_APPLIED"
    return process


def row_of(world: World, number: int = 1) -> Candidate:
    row = world.candidate(key(number))
    assert row is not None
    return row


# ---- REJECTED for want of a row


def test_a_commit_that_a_replica_showed_late_is_found_without_another_announcement() -> None:
    world = World()
    process, row = unseen_commit(world)
    world.outbox.rows[row.unique_key] = row
    reports = world.rounds(process, 14)
    assert world.pending() == []
    world.rounds(process, 6)
    candidate = row_of(world)
    assert (candidate.loss_verdict, candidate.verdict) == (Verdict.LOST_CONFIRM, Verdict.CONSUMED)
    assert len(world.broker.ends) == 1
    assert reports


def test_many_commits_that_a_replica_showed_late_do_not_wait_for_each_other() -> None:
    """No other key is pending, so nothing else has the gate asked, and the trickle lets one through in five seconds."""
    world = World()
    lost = [world.lose(number) for number in range(100)]
    rows = dict(world.outbox.rows)
    world.outbox.rows.clear()
    process = world.process()
    world.rounds(process, 6)
    assert {world.verdict(one) for one in lost} == {"REJECTED"}
    world.outbox.rows.update(rows)
    world.rounds(process, 24)
    assert {world.verdict(one) for one in lost} == {"CONSUMED"}
    assert len(world.broker.ends) == 100


def test_a_verdict_that_is_taken_back_is_kept_with_its_reason() -> None:
    world = World()
    process, row = unseen_commit(world)
    world.outbox.rows[row.unique_key] = row
    world.rounds(process, 20)
    taken_back = row_of(world).evidence["taken_back"]
    assert isinstance(taken_back, dict)
    assert (taken_back["verdict"], taken_back["reason"]) == ("REJECTED", "announced, but the outbox has no row")
    assert row_of(world).first_seen_ms < taken_back["at_ms"] <= world.clock.now_ms()


def test_a_round_tells_people_that_an_absence_was_none() -> None:
    world = World()
    process, row = unseen_commit(world)
    world.outbox.rows[row.unique_key] = row
    told: list[str] = []
    for _ in range(14):
        event = world.rounds(process, 1)[0].event
        assert event is not None
        told += map(said, event.problems)
    assert len(told) == 1
    assert key(1) in told[0]
    assert "REJECTED: announced, but the outbox has no row" in told[0]


def test_a_tombstone_is_final() -> None:
    world = World()
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half, state=OutboxState.ROLLED_BACK)
    world.announce(key(1))
    process = world.process()
    world.rounds(process, 6)
    assert (row_of(world).verdict, row_of(world).ask_again_at_ms) == (Verdict.REJECTED, None)
    process, row = unseen_commit(world, 2)
    world.outbox.rows[row.unique_key] = replace(row, state=OutboxState.ROLLED_BACK)
    world.rounds(process, 14)
    assert (row_of(world, 2).verdict, row_of(world, 2).ask_again_at_ms) == (Verdict.REJECTED, None)
    asked = Statements(world)
    world.rounds(process, 3, every=ASK_AGAIN_SECONDS_MAX)
    assert asked.outbox == []


def test_forged_keys_are_asked_for_in_one_statement_a_round_with_pauses_that_double_and_end() -> None:
    world = World(selection=SelectionRules(skew_margin_seconds=0.5, retention_seconds=72 * HOUR))
    world.announce(*(key(number) for number in range(3)))
    process = world.process()
    world.rounds(process, 6)
    before = row_of(world)
    look_ups, asked, times = len(world.broker.look_ups), Statements(world), []
    for _ in range(80 * 12):
        world.rounds(process, 1, every=300.0)
        if asked.outbox:
            assert asked.outbox == [3]
            times.append((world.clock.now_ms() - before.updated_at_ms) / 60_000)
            asked.outbox.clear()
    pauses = [round(later - earlier) for earlier, later in pairwise(times)]
    assert times[0] <= 6
    assert all(a <= b for a, b in pairwise(pauses))
    assert pauses[-1] == 360
    assert 72 * 60 <= times[-1] <= 79 * 60
    assert len(times) < 25
    asked_of_brokers = world.broker.look_ups[look_ups:]
    assert {kind for kind, _ in asked_of_brokers} == {"halves"}
    assert len(asked_of_brokers) <= 3 * len(times), "and no probe of the index"
    assert asked.inbox == []
    after = row_of(world)
    assert after == replace(before, ask_again_at_ms=None), "nothing but the time changes, and then it stays as it is"


def test_no_more_keys_are_asked_for_in_a_round_than_one_statement_takes() -> None:
    world = World()
    world.announce(*(key(number) for number in range(3 * PAGE_KEYS)))
    process = world.process()
    world.rounds(process, 6)
    world.clock.advance(60)
    asked = Statements(world)
    for _ in range(3):
        world.rounds(process, 1, every=1.0)
    assert asked.outbox == [PAGE_KEYS] * 3, "others come first in the next round"


def test_an_outbox_that_is_away_changes_nothing_but_a_short_pause() -> None:
    world = World()
    process, row = unseen_commit(world)
    world.clock.advance(HOUR)
    world.outbox.away = True
    before = row_of(world)
    world.rounds(process, 1)
    now_ms = world.clock.now_ms()
    wanted = replace(before, ask_again_at_ms=now_ms + round(ASK_AGAIN_SECONDS_MIN * 1000))
    assert row_of(world) == replace(wanted, updated_at_ms=now_ms), "it is as unreviewed as it was"
    world.outbox.away = False
    world.outbox.rows[row.unique_key] = row
    world.rounds(process, 14)
    assert row_of(world).loss_verdict is Verdict.LOST_CONFIRM


def test_a_key_that_is_asked_for_again_is_judged_where_its_shard_is_now() -> None:
    """Its row is of a queue that there is no more."""
    world = World(shards=4)
    number = next(n for n in range(99) if world.topic.shard_of(key(n)) == 3)
    _, row = unseen_commit(world, number)
    world.topic = replace(world.topic, shards=2)
    world.outbox.rows[row.unique_key] = row
    world.rounds(world.process(), 14)
    assert row_of(world, number).loss_verdict is Verdict.LOST_CONFIRM


def test_a_stand_by_asks_nobody() -> None:
    world = World()
    unseen_commit(world)
    stand_by, asked = world.process(owner="reconciler-2"), Statements(world)
    world.clock.advance(61)
    for shard in world.topic.shards_of(world.subscriptions[0]):
        world.shards.take(shard, token="reconciler-1", lease_seconds=1e6)
    stand_by.run(world.subscriptions[0])
    assert asked.outbox == []


# ---- the quarantine


def test_an_effect_that_a_replica_showed_late_leaves_the_quarantine_by_itself() -> None:
    world = World()
    process = acknowledged(world)
    world.apply("billing", world.broker.copies[0])
    world.rounds(process, 14)
    row = row_of(world)
    assert (row.verdict, row.state) == (Verdict.CONSUMED, CandidateState.SETTLED)
    taken_back = row.evidence["taken_back"]
    assert isinstance(taken_back, dict)
    assert taken_back["verdict"] == "DELIVERED_NOT_APPLIED"


def test_quarantined_keys_are_read_in_their_inbox_only() -> None:
    world = World()
    process = acknowledged(world)
    look_ups, asked = len(world.broker.look_ups), Statements(world)
    world.rounds(process, 20)
    assert asked.outbox == []
    assert set(asked.inbox) == {1}
    assert len(world.broker.look_ups) == look_ups
    assert row_of(world).verdict is Verdict.DELIVERED_NOT_APPLIED


def test_an_effect_with_another_content_stays_with_a_person_and_is_asked_for_once() -> None:
    world = World()
    process = acknowledged(world)
    world.inbox.rows["billing", key(1)] = world.inbox_row("billing", key(1), b"x" * 32)
    world.rounds(process, 14)
    row = row_of(world)
    assert (row.verdict, row.state, row.ask_again_at_ms) == (Verdict.COLLISION, CandidateState.QUARANTINED, None)


def test_a_loss_that_was_given_up_is_settled_by_its_late_effect_and_its_first_verdict_stays() -> None:
    world = World()
    process, lost = world.proved_loss()
    half, repair = world.broker.halves[0], world.repair(lost)
    assert repair is not None
    world.ledger.repairs.claim(repair, token="t", lease_seconds=1)
    world.ledger.repairs.change(repair, RepairChange(state=RepairState.FAILED, rung=Rung.END), token="t")
    world.rounds(process, 6, consume=False)
    assert (row_of(world).state, row_of(world).loss_verdict) == (CandidateState.QUARANTINED, Verdict.LOST_CONFIRM)
    world.apply("billing", half)
    world.rounds(process, 14, consume=False)
    row = row_of(world)
    assert (row.verdict, row.loss_verdict) == (Verdict.CONSUMED, Verdict.LOST_CONFIRM)


@pytest.mark.parametrize("by_hand_over", [False, True])
def test_a_repair_that_failed_needs_nobody_when_every_group_has_the_effect_all_the_same(by_hand_over: bool) -> None:
    """But what the worker of a hand-over met is for a person."""
    world = World(groups=("billing", "shipping"))
    process, lost = world.proved_loss()
    process.keys_by_hand.judge_one(world.subscriptions[1], lost)
    half = world.broker.halves[0]
    if by_hand_over:
        world.ledger.hand_overs.insert(ENVIRONMENT, half, groups=["billing"])
    for row in world.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, [lost])[lost]:
        world.ledger.repairs.claim(row, token="t", lease_seconds=1)
        world.ledger.repairs.change(row, RepairChange(state=RepairState.FAILED, rung=row.rung), token="t")
    world.rounds(process, 6, consume=False)
    states = []
    for group in ("billing", "shipping"):
        world.apply(group, half)
        world.rounds(process, 14, consume=False)
        assert world.verdict(lost, group) == "CONSUMED"
        repair = world.repair(lost)
        assert repair is not None
        states.append((repair.state, repair.answer))
    failed = (RepairState.FAILED, None)
    assert states == [failed, failed if by_hand_over else (RepairState.DONE, "no group lacks the message any more")]


# ---- what a person has dismissed


def dismissed(world: World, number: int = 1, *, asks_inboxes: bool = True) -> Candidate:
    """As paid by hand; its repair, too."""
    life = world.ledger.reports.life(ENVIRONMENT, key(number))
    closing = Dismissals(closings=world.ledger.closings, configured=world.subscriptions)
    seen = KeyInLedger(candidates=life.candidates, repairs=life.repairs)
    found = {s.group: world.inbox.look_up(s, [key(number)])[key(number)] for s in world.subscriptions}
    effects = {group: effect_found(lookup, None) for group, lookup in found.items()} if asks_inboxes else None
    outcomes = closing.dismiss(seen, group=None, by="ann", reason="paid by hand", effects=effects)
    assert set(outcomes.values()) == {"dismissed"}
    return row_of(world, number)


def test_a_dismissed_message_that_takes_effect_later_waits_for_a_person_as_a_double_effect() -> None:
    world = World()
    process = acknowledged(world)
    before = dismissed(world)
    world.rounds(process, 14)
    world.apply("billing", world.broker.copies[0])
    reports = [report for _ in range(40) for report in world.rounds(process, 1)]
    row = row_of(world)
    assert (row.state, row.verdict) == (CandidateState.QUARANTINED, Verdict.COLLISION)
    assert (row.took_effect_dismissed, row.is_dismissed, row.ask_again_at_ms) == (True, False, None)
    assert row.evidence["dismissed_at_ms"] == before.updated_at_ms
    assert "dismissed it as DELIVERED_NOT_APPLIED (by ann: paid by hand)" in str(row.evidence["reason"])
    notes = [said(note) for report in reports if report.event is not None for note in report.event.problems]
    assert [note.startswith(f"1 dismissed keys took effect; the first, {key(1)}") for note in notes] == [True]
    reports_of = world.ledger.reports
    (line,) = double_effects(reports_of, reports_of.verdict_counts(ENVIRONMENT), ENVIRONMENT)
    assert said(line) == (
        f"{row.subscription}: 1 keys took effect after a person had dismissed them, for example {key(1)}: what was "
        "done by hand was done twice; undo one of the two, keep the inbox row, dismiss the key again"
    )


def test_a_late_effect_that_another_process_has_told_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    process = acknowledged(world)
    dismissed(world)
    world.apply("billing", world.broker.copies[0])
    wake = world.ledger.candidates.wake_dismissed

    def after_the_other_one(of: Subscription, late: Sequence[VerdictEntry]) -> Collection[str]:
        wake(of, late)
        return wake(of, late)

    monkeypatch.setattr(world.ledger.candidates, "wake_dismissed", after_the_other_one)
    reports = [report for _ in range(20) for report in world.rounds(process, 1)]
    assert (row_of(world).took_effect_dismissed, row_of(world).ask_again_at_ms) == (True, None)
    assert [note for report in reports if report.event is not None for note in report.event.problems] == []


def test_it_is_dismissed_again_once_a_person_has_undone_one_of_the_two() -> None:
    world = World()
    process = acknowledged(world)
    dismissed(world)
    world.apply("billing", world.broker.copies[0])
    world.rounds(process, 14)
    assert row_of(world).took_effect_dismissed
    row = dismissed(world)
    assert (row.state, row.verdict) == (CandidateState.SETTLED, Verdict.COLLISION)
    assert not row.took_effect_dismissed
    world.rounds(process, 60)
    assert replace(row_of(world), ask_again_at_ms=row.ask_again_at_ms) == row


def test_nothing_is_sent_for_a_dismissed_message_whose_effect_was_seen_and_is_gone() -> None:
    """The person undoes the effect and deletes its inbox row, too; another group lacks the message."""
    world = World(groups=("billing", "shipping"))
    world.lose(1)
    half = world.broker.halves[:]
    world.broker.halves.clear()
    process = world.process()
    world.rounds(process, 30)
    dismissed(world)
    world.inbox.rows["billing", key(1)] = world.inbox_row("billing", key(1))
    world.rounds(process, 14)
    assert world.verdict(key(1), "billing") == "COLLISION"
    world.inbox.rows.pop(("billing", key(1)))
    world.broker.halves.extend(half)
    world.announce(key(1))
    world.rounds(process, 60)
    process.keys_by_hand.repair_one(world.subscriptions[1], key(1))
    world.rounds(process, 30)
    assert (world.broker.ends, world.broker.republished) == ([], [])


def test_half_an_effect_of_a_dismissed_message_is_told_as_well() -> None:
    world = World()
    process = acknowledged(world)
    dismissed(world)
    world.inbox.rows["billing", key(1)] = replace(world.inbox_row("billing", key(1)), incomplete="7")
    world.rounds(process, 14)
    assert row_of(world).took_effect_dismissed


def test_a_dismissed_key_without_an_effect_stays_so_and_is_asked_for_no_longer_than_brokers_keep_it() -> None:
    world = World()
    process = acknowledged(world)
    before = dismissed(world)
    asked = Statements(world)
    world.rounds(process, 30)
    assert asked.inbox
    assert replace(row_of(world), ask_again_at_ms=before.ask_again_at_ms) == before
    for _ in range(8 + round(SelectionRules().retention_seconds / ASK_AGAIN_SECONDS_MAX)):
        world.rounds(process, 1, every=ASK_AGAIN_SECONDS_MAX)
    assert row_of(world).ask_again_at_ms is None
    asked = Statements(world)
    world.rounds(process, 60)
    assert asked.inbox == []


def _half_an_effect(world: World) -> None:
    world.inbox.rows["billing", key(1)] = replace(world.inbox_row("billing", key(1)), incomplete="7")


def _another_message(world: World) -> None:
    world.inbox.rows["billing", key(1)] = world.inbox_row("billing", key(1), digest=b"x" * 32)


def _two_outboxes(world: World) -> None:
    """A second outbox has the key with another content: of the effect nothing is there."""
    row = world.outbox.rows[key(1)]
    both = Lookup(presence=Presence.FOUND, records=(row.seen, replace(row, content_digest=b"y" * 32).seen))
    world.outbox.look_up = lambda *_, **__: {key(1): both}  # type: ignore[method-assign]


#: Verdicts for what an inbox has, or may have, and how each comes about.
ON_THE_ROW: dict[str, tuple[Callable[[World], None], Verdict]] = {
    "half an effect": (_half_an_effect, Verdict.INCOMPLETE),
    "another message": (_another_message, Verdict.COLLISION),
    "no row": (_two_outboxes, Verdict.COLLISION),
}


def waiting_for_a_person(how: str) -> tuple[World, ReconcileRound]:
    world = World()
    world.deliver(1)
    world.consume(effects=False)
    make, verdict = ON_THE_ROW[how]
    make(world)
    process = world.process()
    world.rounds(process, 6)
    assert row_of(world).verdict is verdict
    return world, process


@pytest.mark.parametrize("how", ON_THE_ROW)
def test_what_was_dismissed_for_its_inbox_row_waits_for_a_person_again_once_another_effect_is_there(how: str) -> None:
    """`reconciler incomplete delete`, or somebody by hand: then the message is delivered once more."""
    world, process = waiting_for_a_person(how)
    before = dismissed(world)
    world.rounds(process, 14)
    assert row_of(world).is_dismissed, "what the person saw is no news"
    world.inbox.rows.pop(("billing", key(1)), None)
    world.apply("billing", world.broker.copies[0])
    world.rounds(process, 60)
    row = row_of(world)
    assert (row.verdict, row.took_effect_dismissed) == (Verdict.COLLISION, True)
    assert f"dismissed it as {before.verdict} (by ann: paid by hand)" in str(row.evidence["reason"])
    again = dismissed(world)
    world.rounds(process, 60)
    assert replace(row_of(world), ask_again_at_ms=again.ask_again_at_ms) == again


def test_half_an_effect_that_is_accepted_after_its_dismissal_is_what_the_person_saw() -> None:
    world, process = waiting_for_a_person("half an effect")
    before = dismissed(world)
    world.inbox.rows["billing", key(1)] = replace(world.inbox.rows["billing", key(1)], incomplete=None)
    world.rounds(process, 60)
    assert replace(row_of(world), ask_again_at_ms=before.ask_again_at_ms) == before


def test_what_was_dismissed_for_its_inbox_row_while_no_inbox_told_is_not_asked_for() -> None:
    world, _ = waiting_for_a_person("another message")
    world.inbox.away = True
    assert dismissed(world).ask_again_at_ms is None


def test_what_an_earlier_release_dismissed_for_its_inbox_row_stays_so_although_its_inbox_is_asked() -> None:
    """Release 0.2.0 leaves the time of the next question as it was."""
    world, process = waiting_for_a_person("half an effect")
    shard = Shard(subscription=world.subscriptions[0], number=row_of(world).shard)
    row = row_of(world)
    closed = VerdictEntry(
        unique_key=row.unique_key,
        verdict=row.verdict,
        evidence=row.evidence,
        first_seen_ms=row.first_seen_ms,
        state=CandidateState.SETTLED,
        wait_seconds=0.0,
        ask_again_seconds=ASK_AGAIN_SECONDS_MIN,
    )
    world.ledger.candidates.record(shard, [closed])
    world.rounds(process, 60)
    assert row_of(world).is_dismissed


def test_what_a_person_dismisses_while_its_inbox_is_asked_is_not_opened() -> None:
    world = World()
    process = acknowledged(world)
    world.apply("billing", world.broker.copies[0])
    look_up = world.inbox.look_up

    def dismissed_meanwhile(*of: Any, **clock: Any) -> Any:
        world.inbox.look_up = look_up  # type: ignore[method-assign]
        dismissed(world, asks_inboxes=False)
        return look_up(*of, **clock)

    world.inbox.look_up = dismissed_meanwhile  # type: ignore[method-assign]
    while row_of(world).verdict is Verdict.DELIVERED_NOT_APPLIED:
        assert row_of(world).state is not CandidateState.OPEN
        world.rounds(process, 1)
    assert row_of(world).took_effect_dismissed


def test_without_an_inbox_nobody_is_asked_about_a_dismissed_key() -> None:
    world = World()
    process = acknowledged(world)
    dismissed(world)
    world.inbox.configured = False
    world.rounds(process, 14)
    assert row_of(world).ask_again_at_ms is None


def test_without_an_inbox_there_is_nothing_to_ask() -> None:
    world = World()
    acknowledged(world)
    world.inbox.configured = False
    row = row_of(world)
    assert row.ask_again_at_ms is not None
    judged = world.process().keys_by_hand.judge_one(world.subscriptions[0], key(1), dry_run=True)
    assert judged.entry.ask_again_seconds is None


# ---- several outboxes


@pytest.mark.parametrize("questions", [0, 3])
def test_a_commit_is_found_that_another_database_showed_late_behind_a_tombstone(questions: int) -> None:
    """An older instance answered a check-back about a half whose commit is in another database."""
    world = World()
    committed = world.outbox.rows.pop(world.lose(1))
    tombstone = replace(committed, state=OutboxState.ROLLED_BACK)
    without = WitnessAnswer(witness="second", presence=Presence.ABSENT, detail="no row")
    found = [Lookup(presence=Presence.FOUND, records=(tombstone.seen,), answers=(without,))]

    def look_up(
        topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        del topic, now_ms
        return dict.fromkeys(not_before_ms, found[-1])

    world.outbox.look_up = look_up  # type: ignore[method-assign]
    process = world.process()
    world.rounds(process, 6)
    for _ in range(questions):
        before = row_of(world).ask_again_at_ms
        assert before is not None, "a tombstone is final only where every database has one"
        while row_of(world).ask_again_at_ms == before:
            world.rounds(process, 1)
    assert world.verdict(key(1)) == "REJECTED"
    found.append(Lookup(presence=Presence.FOUND, records=(committed.seen,)))
    world.rounds(process, 20 + 30 * questions)
    assert world.verdict(key(1)) == "CONSUMED"


# ---- pauses


def unanswered(world: World, row: Candidate) -> Suspect:
    suspect = suspect_of(world.topic, world.topic.subscriptions[0], row)
    return replace(suspect, outbox=Lookup(presence=Presence.ABSENT))


@pytest.mark.parametrize(
    ("stood", "wanted"),
    [
        (0, 90),
        (30, 60),
        (60, 60),
        (119, 60),
        (120, 120),
        (300, 240),
        (HOUR, 1920),
        (20 * HOUR, 21600),
        (72 * HOUR, None),
    ],
)
def test_pauses_are_as_long_as_the_verdict_has_stood_and_end(stood: float, wanted: float | None) -> None:
    world = World()
    unseen_commit(world)
    row = row_of(world)
    row = replace(row, ask_again_at_ms=row.updated_at_ms + round(stood * 1000))
    suspect = unanswered(world, row)
    assert pause_seconds(row, suspect, retention_seconds=72 * HOUR) == wanted
    away = replace(suspect, outbox=Lookup.unknown("outbox", "away"))
    expected = None if wanted is None else ASK_AGAIN_SECONDS_MIN
    assert pause_seconds(row, away, retention_seconds=72 * HOUR) == expected


def test_a_verdict_has_stood_for_no_longer_by_a_clock_of_the_ledger_that_was_40_days_ahead() -> None:
    world = World()
    unseen_commit(world)
    row = row_of(world)
    redis_ms = row.updated_at_ms + 300_000
    row = replace(row, ask_again_at_ms=row.updated_at_ms + round(40 * 24 * HOUR * 1000))
    suspect = unanswered(world, row)
    assert pause_seconds(row, suspect, retention_seconds=72 * HOUR, now_ms=redis_ms) == 240
    judged_then = replace(row, updated_at_ms=redis_ms + 40 * 86_400_000)
    assert pause_seconds(judged_then, suspect, retention_seconds=72 * HOUR, now_ms=redis_ms) == 90


def test_a_row_whose_time_nobody_can_read_gets_one() -> None:
    world = World()
    unseen_commit(world)
    row = replace(row_of(world), ask_again_at_ms=None, damage="ask_again_at_ms is 1.5")
    suspect = unanswered(world, row)
    assert pause_seconds(row, suspect, retention_seconds=HOUR) == ASK_AGAIN_SECONDS_MIN
