"""The repair's pure decisions: boundaries as triples, and what must hold for any evidence."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.contract.kept_facts import GOES_ON_LATER, POSITION, POSITIONS
from reconciler.contract.tables import CandidateState, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvariantViolation
from reconciler.policy.commit_evidence import CommitEvidence
from reconciler.policy.evidence import (
    ConsumeMode,
    EndOutcome,
    Lookup,
    Presence,
    QueuePosition,
    SendAnswer,
    StoredMessage,
)
from reconciler.policy.inquiry.case_file import GroupAnswers, Question
from reconciler.policy.inquiry.delivery import newest_per_broker, outbox_unknown
from reconciler.policy.ports.ledger import Candidate
from reconciler.policy.repairing.case import ATTEMPTS_MAX, RepairCase, RepairStep, require_legal
from reconciler.policy.repairing.ladder import after_answer, decide
from reconciler.policy.repairing.rungs import Act
from reconciler.words import said
from tests.examples import examples
from tests.simulation.outbox_table import TableRow
from tests.unit.contract.keys import GO
from tests.unit.policy.world import TOPIC, World, evidence, key

WORLD = World(groups=("billing", "shipping"))
HALF = WORLD.broker.send_half(key(1))
COPY = WORLD.broker.commit(HALF)
ROW = WORLD.commit_locally(key(1), HALF)
KEPT = {name: value for name, value in HALF.properties.items() if name not in ("TAGS", "KEYS")}
WORLD.ledger.repairs.open("test", "ORDERS", key(1), rung=Rung.END)
OPEN_ROW = WORLD.ledger.repairs.claimable("test", "ORDERS", scope="*", limit=1)[0]
NOW = OPEN_ROW.created_at_ms + 60_000
ABSENT: Lookup[Any] = Lookup(presence=Presence.ABSENT)
UNKNOWN: Lookup[Any] = Lookup.unknown("witness", "timed out")
EFFECT = Lookup(presence=Presence.FOUND, records=(WORLD.inbox_row("billing", key(1)),))


def found(*records: object) -> Lookup[Any]:
    seen = tuple(record.seen if isinstance(record, TableRow) else record for record in records)
    return Lookup(presence=Presence.FOUND, records=seen)


def at(verdict: Verdict) -> GroupAnswers:
    """What is known of a group that is at this place with COPY."""
    offset = 0 if verdict is Verdict.LAGGING else COPY.queue_offset + 1
    place = QueuePosition(
        topic=COPY.topic, broker=COPY.broker, queue_id=COPY.queue_id, consumer_offset=offset, min_offset=0, max_offset=9
    )
    dead = found(COPY) if verdict is Verdict.DEAD_LETTERED else ABSENT
    again = EFFECT if verdict is Verdict.CONSUMED else ABSENT
    return GroupAnswers(
        inbox=ABSENT,
        positions=[place],
        inbox_again=again,
        copies={"retry": ABSENT, "dead-letter": dead},
        consume_mode=ConsumeMode.POP if verdict is Verdict.UNKNOWN else ConsumeMode.PULL,
    )


def case(**changes: Any) -> RepairCase:
    """A repair whose loss was proved a minute ago; every look-up of copies has been answered."""
    repair = {name: changes.pop(name) for name in ("state", "rung", "attempts", "sent_at_ms") if name in changes}
    inboxes = changes.pop("inboxes", {})
    positions = changes.pop("group_positions", None) or {}
    sources, outbox = changes.pop("evidence", (WORLD.topic.evidence, found(ROW)))
    of_group = {
        group: replace(
            at(positions[group]) if group in positions else GroupAnswers(),
            inbox=inboxes.get(group, None if inboxes else ABSENT),
            has_inbox=not inboxes or group in inboxes,
        )
        for group in ("billing", "shipping")
    }
    known: dict[str, Any] = {
        "unique_key": key(1),
        "topic": replace(WORLD.topic, evidence=sources),
        "plans": changes.get("topic", WORLD.topic).subscriptions,
        "now_ms": NOW,
        "verify_after_seconds": 4.0,
        "of_group": of_group,
        "outbox": outbox,
        "copies": ABSENT,
        "halves": found(HALF),
        "parked": ABSENT,
        "hand_overs": (),
    }
    return RepairCase(repair=replace(OPEN_ROW, **repair), **(known | changes))


def decided(one: RepairCase) -> RepairStep:
    answer = decide(one)
    assert isinstance(answer, RepairStep)
    return answer


def test_a_group_that_does_not_take_the_tag_fails_no_repair_while_the_outbox_is_away() -> None:
    """The others lag behind a copy that was there before a send, and no witness has the tag."""
    plans = tuple(
        replace(p, tags=frozenset({"other"})) if p.group == "shipping" else p for p in WORLD.topic.subscriptions
    )
    stands = {"billing": Verdict.LAGGING, "shipping": Verdict.DELIVERED_NOT_APPLIED}
    late = {"state": RepairState.SENT, "now_ms": NOW + 600_000, "copies": found(COPY), "group_positions": stands}
    away = decided(case(topic=replace(WORLD.topic, subscriptions=plans), outbox=UNKNOWN, **late))
    assert (away.state, away.reason) == (RepairState.SENT, outbox_unknown(UNKNOWN))
    known = decided(case(topic=replace(WORLD.topic, subscriptions=plans), **late))
    assert (known.state, known.reason) == (
        RepairState.SENT,
        POSITIONS(groups=(POSITION(group="billing", verdict="LAGGING"),)),
    )


def test_open_repair_with_a_half_is_ended() -> None:
    assert (decided(case()).act, decided(case()).subject) == (Act.END, HALF)


@pytest.mark.parametrize(
    ("inboxes", "act"),
    [
        ({"billing": UNKNOWN, "shipping": UNKNOWN}, Act.WRITE),
        ({"billing": EFFECT, "shipping": UNKNOWN}, Act.WRITE),
        ({"billing": UNKNOWN, "shipping": ABSENT}, Act.END),
        ({"billing": UNKNOWN}, Act.END),  # not known of a group without an inbox
        ({}, Act.END),
    ],
)
def test_nothing_is_sent_while_no_group_is_known_to_lack_the_effect(inboxes: dict[str, Lookup[Any]], act: Act) -> None:
    decision = decided(case(inboxes=inboxes))
    assert decision.act is act
    assert decision.state is (RepairState.SENDING if act is Act.END else RepairState.OPEN)


def verdict_on_billing(**changes: Any) -> dict[str, Candidate]:
    row = Candidate(
        subscription=WORLD.subscriptions[0], unique_key=key(1), shard=0, state=CandidateState.SETTLED,
        verdict=Verdict.QUARANTINED, loss_verdict=Verdict.EXPIRED, evidence={}, attempts=1, first_seen_ms=1,
        next_at_ms=1, updated_at_ms=1,
    )  # fmt: skip
    return {"billing": replace(row, **changes)}


@pytest.mark.parametrize(
    ("settled_as", "effect", "rung"),
    [
        (Verdict.QUARANTINED, ABSENT, Rung.REPUBLISH),  # a person dismissed it: END would reach billing
        (Verdict.QUARANTINED, UNKNOWN, Rung.REPUBLISH),
        (Verdict.QUARANTINED, EFFECT, Rung.END),  # its inbox refuses another copy
        (Verdict.CONSUMED, ABSENT, Rung.END),
    ],
)
def test_what_reaches_every_group_is_not_sent_once_a_group_without_the_effect_is_dismissed(
    settled_as: Verdict, effect: Lookup[Any], rung: Rung
) -> None:
    inboxes = {"billing": effect, "shipping": ABSENT}
    decision = decided(case(inboxes=inboxes, verdicts=verdict_on_billing(verdict=settled_as)))
    assert decision.rung is rung
    assert (decision.state is RepairState.SENDING) == (rung is Rung.END)


def test_a_hand_over_leaves_out_the_group_that_is_dismissed() -> None:
    decision = decided(case(rung=Rung.HAND_OVER, verdicts=verdict_on_billing()))
    assert (decision.act, decision.groups) == (Act.HAND_OVER, ("shipping",))


@pytest.mark.parametrize(
    ("rung", "verdict", "act"),
    [
        (Rung.HAND_OVER, Verdict.QUARANTINED, Act.HAND_OVER),  # a person made the effect in billing
        (Rung.HAND_OVER, Verdict.DELIVERED, Act.HAND_OVER),
        (Rung.HAND_OVER, Verdict.UNKNOWN, Act.WRITE),  # it would be handed to billing, too
        (Rung.REPUBLISH, Verdict.DELIVERED, Act.WRITE),
    ],
)
def test_a_copy_that_may_be_gone_matters_only_in_groups_that_a_send_would_reach(
    rung: Rung, verdict: Verdict, act: Act
) -> None:
    """billing has no inbox, and may have had a copy that brokers have deleted."""
    is_open = verdict is Verdict.UNKNOWN
    state = CandidateState.OPEN if is_open else CandidateState.SETTLED
    one = case(
        rung=rung, inboxes={"shipping": ABSENT}, now_ms=NOW + 4 * 86_400_000, halves=ABSENT,
        evidence=(WORLD.topic.evidence, found(WORLD.commit_locally(key(1), HALF, body=HALF.body, properties=KEPT))),
        verdicts=verdict_on_billing(state=state, verdict=verdict),
    )  # fmt: skip
    decision = decided(one)
    assert decision.act is act
    assert decision.groups == (("shipping",) if act is Act.HAND_OVER else ())
    assert (decision.reason.code.name == "reason.copy-may-be-gone") == (act is Act.WRITE)


def test_a_group_that_does_not_take_the_message_is_spared_nothing() -> None:
    plans = tuple(
        replace(p, tags=frozenset({"other"})) if p.group == "billing" else p for p in WORLD.topic.subscriptions
    )
    one = case(topic=replace(WORLD.topic, subscriptions=plans), verdicts=verdict_on_billing())
    assert decided(one).act is Act.END


@pytest.mark.parametrize(("waited_ms", "state"), [(899_999, RepairState.OPEN), (900_000, RepairState.FAILED)])
def test_a_verdict_that_cannot_be_read_may_be_a_dismissal_and_nothing_is_sent(
    waited_ms: int, state: RepairState
) -> None:
    """Its own rounds write it anew while the key is pending; a dismissed one nobody does."""
    unread = verdict_on_billing(state=CandidateState.OPEN, verdict=Verdict.UNKNOWN, damage="state: DISMISST")
    one = case(now_ms=OPEN_ROW.created_at_ms + waited_ms, verdicts=unread)
    assert (decided(one).act, decided(one).state) == (Act.WRITE, state)
    assert "state: DISMISST" in said(decided(one).reason)
    with_effect = replace(one, of_group={**one.of_group, "billing": GroupAnswers(inbox=EFFECT)})
    assert decided(with_effect).act is Act.END


@pytest.mark.parametrize(("attempts", "act"), [(15, Act.END), (16, Act.WRITE), (17, Act.WRITE)])
def test_sixteen_attempts_are_the_end(attempts: int, act: Act) -> None:
    decision = decided(case(attempts=attempts))
    assert decision.act is act
    assert (decision.state is RepairState.FAILED) == (act is Act.WRITE)


@pytest.mark.parametrize(("waited_ms", "done"), [(3_999, False), (4_000, True), (4_001, True)])
def test_effect_is_believed_when_put_back_copies_would_have_come(waited_ms: int, done: bool) -> None:
    seen = {"billing": EFFECT, "shipping": EFFECT}
    sent = case(state=RepairState.SENT, attempts=1, sent_at_ms=NOW - waited_ms, inboxes=seen, copies=found(COPY))
    decision = decided(sent)
    assert decision.state is (RepairState.DONE if done else RepairState.SENT)
    assert decision.wait_seconds == pytest.approx(0.0 if done else 0.001)


ON_B = replace(HALF, broker="broker-b")
PUT_BACK = replace(HALF, commit_log_offset=HALF.commit_log_offset + 50, check_times=1)


@pytest.mark.parametrize(("named", "ended"), [("broker-a", HALF), ("broker-b", ON_B), ("broker-c", HALF), (None, HALF)])
def test_of_halves_on_two_brokers_the_one_is_ended_that_the_outbox_names(
    named: str | None, ended: StoredMessage
) -> None:
    two = case(halves=found(HALF, ON_B), outbox=found(replace(ROW, half_broker=named)))
    assert (decided(two).act, decided(two).subject) == (Act.END, ended)


def test_no_half_is_closed_where_a_query_proves_commits() -> None:
    """It proves that some transaction of the key was committed: the half may be another one's."""
    seen = {"billing": EFFECT, "shipping": EFFECT}
    sent = {"state": RepairState.SENT, "attempts": 1, "sent_at_ms": NOW - 50_000, "inboxes": seen}
    made = World()
    made.with_query()
    decision = decided(case(copies=found(COPY), halves=found(HALF, ON_B), evidence=(made.topic.evidence, None), **sent))
    assert (decision.state, decision.act, decision.halves) == (RepairState.DONE, Act.WRITE, ())


@pytest.mark.parametrize(
    ("copies", "halves", "closed"),
    [
        ([COPY], [HALF], []),
        ([COPY], [HALF, ON_B], [ON_B]),  # another broker's log has its own offsets
        ([replace(COPY, broker="broker-b")], [HALF, ON_B], [HALF]),
        ([COPY, replace(COPY, broker="broker-b")], [HALF, ON_B], []),
        (
            [COPY],
            [HALF, PUT_BACK, ON_B, replace(PUT_BACK, broker="broker-b")],
            [PUT_BACK, replace(PUT_BACK, broker="broker-b")],
        ),
        ([COPY], [HALF, replace(ON_B, topic=TOPIC)], []),  # up to 4.2 no broker asks
    ],
)
def test_the_newest_half_copy_of_each_broker_is_closed_unless_it_was_committed(
    copies: list[StoredMessage], halves: list[StoredMessage], closed: list[StoredMessage]
) -> None:
    seen = {"billing": EFFECT, "shipping": EFFECT}
    sent = {"state": RepairState.SENT, "attempts": 1, "sent_at_ms": NOW - 50_000, "inboxes": seen}
    decision = decided(case(copies=found(*copies), halves=found(*halves), **sent))
    assert (decision.state, decision.halves) == (RepairState.DONE, tuple(closed))
    assert decision.act is (Act.CLOSE if closed else Act.WRITE)


@pytest.mark.parametrize(("waited_ms", "climbs"), [(19_999, False), (20_000, True), (20_001, True)])
def test_two_grace_periods_of_patience(waited_ms: int, climbs: bool) -> None:
    verdicts = {"billing": Verdict.DELIVERED_NOT_APPLIED, "shipping": Verdict.LAGGING}
    sent = case(
        state=RepairState.SENT,
        attempts=1,
        sent_at_ms=NOW - waited_ms,
        copies=found(COPY),
        group_positions=verdicts,
    )
    decision = decided(sent)
    assert (decision.state, decision.rung) == (
        (RepairState.OPEN, Rung.REPUBLISH) if climbs else (RepairState.SENT, Rung.END)
    )


@pytest.mark.parametrize(
    ("shipping", "state"), [(Verdict.DEAD_LETTERED, RepairState.FAILED), (Verdict.LAGGING, RepairState.SENT)]
)
@pytest.mark.parametrize("before", [RepairState.SENT, RepairState.OPEN])
def test_a_dead_letter_of_one_group_ends_no_repair_that_another_group_waits_for(
    before: RepairState, shipping: Verdict, state: RepairState
) -> None:
    verdicts = {"billing": Verdict.DEAD_LETTERED, "shipping": shipping}
    late = {"attempts": 1, "sent_at_ms": NOW - 50_000, "copies": found(COPY), "group_positions": verdicts}
    assert decided(case(state=before, **late)).state is state


@pytest.mark.parametrize(
    ("shipping", "state"), [(Verdict.UNKNOWN, RepairState.FAILED), (Verdict.LAGGING, RepairState.SENT)]
)
def test_a_dead_letter_ends_a_repair_of_which_a_group_without_an_inbox_tells_nothing(
    shipping: Verdict, state: RepairState
) -> None:
    late = {"attempts": 1, "sent_at_ms": NOW - 50_000, "copies": found(COPY), "inboxes": {"billing": ABSENT}}
    verdicts = {"billing": Verdict.DEAD_LETTERED, "shipping": shipping}
    assert decided(case(state=RepairState.SENT, group_positions=verdicts, **late)).state is state


@pytest.mark.parametrize(
    ("shipping", "state"), [(Verdict.DEAD_LETTERED, RepairState.FAILED), (Verdict.LAGGING, RepairState.OPEN)]
)
def test_a_text_key_that_no_copy_may_follow_is_for_a_person_once_who_waits_has_dead_lettered_it(
    shipping: Verdict, state: RepairState
) -> None:
    """The last rung sends nothing while an effect of the first copy may still come under a former name."""
    verdicts = {"billing": Verdict.DELIVERED_NOT_APPLIED, "shipping": shipping}
    late = {"attempts": 1, "sent_at_ms": NOW - 50_000, "copies": found(COPY), "group_positions": verdicts}
    last = replace(WORLD.topic, repair_order=(Rung.END, Rung.REPUBLISH))
    assert decided(case(state=RepairState.OPEN, unique_key=GO, rung=Rung.REPUBLISH, topic=last, **late)).state is state


@pytest.mark.parametrize(
    ("waited_seconds", "wait_seconds"), [(8, 5.0), (40, 10.0), (239, 59.75), (240, 60.0), (36_000, 60.0)]
)
def test_repair_of_a_group_that_stands_still_is_looked_at_less_and_less_often(
    waited_seconds: int, wait_seconds: float
) -> None:
    lagging = {"billing": Verdict.LAGGING, "shipping": Verdict.LAGGING}
    sent_at_ms = NOW - waited_seconds * 1000
    sent = case(state=RepairState.SENT, attempts=1, sent_at_ms=sent_at_ms, copies=found(COPY), group_positions=lagging)
    decision = decided(sent)
    assert (decision.act, decision.state) == (Act.WRITE, RepairState.SENT)
    assert decision.wait_seconds == pytest.approx(wait_seconds)


def test_sent_repair_whose_copies_are_unknown_waits() -> None:
    sent = case(state=RepairState.SENT, attempts=1, sent_at_ms=NOW - 50_000, copies=UNKNOWN)
    assert (decided(sent).state, decided(sent).goes_on) == (RepairState.SENT, False)


def test_message_is_taken_from_the_committed_copy_when_the_half_is_gone() -> None:
    verdicts = {"billing": Verdict.DELIVERED_NOT_APPLIED, "shipping": Verdict.DELIVERED_NOT_APPLIED}
    climbed = case(
        rung=Rung.REPUBLISH,
        attempts=1,
        sent_at_ms=NOW - 50_000,
        copies=found(COPY),
        halves=ABSENT,
        group_positions=verdicts,
    )
    assert (decided(climbed).act, decided(climbed).subject) == (Act.REPUBLISH, COPY)


@pytest.mark.parametrize(
    ("next_in_ms", "lease_in_ms", "free"),
    [(0, None, True), (1, None, False), (0, -1, True), (0, 0, False), (0, 1, False)],
)
def test_a_hand_over_row_is_withdrawn_from_the_worker_that_holds_it_or_kept_for_none(
    next_in_ms: int, lease_in_ms: int | None, free: bool
) -> None:
    """Two groups have the effect; the row of one is in question, that of the other was run."""
    row = replace(
        OPEN_ROW,
        scope="billing",
        next_at_ms=NOW + next_in_ms,
        lease_until_ms=None if lease_in_ms is None else NOW + lease_in_ms,
    )
    decision = decided(
        case(
            state=RepairState.SENT,
            rung=Rung.HAND_OVER,
            attempts=1,
            sent_at_ms=NOW - 50_000,
            inboxes={"billing": EFFECT, "shipping": EFFECT},
            hand_overs=(row, replace(row, scope="shipping", state=RepairState.DONE)),
        )
    )
    assert (decision.act, decision.goes_on, decision.rows) == (
        (Act.WITHDRAW, True, (row,)) if free else (Act.WRITE, False, ())
    )
    assert (decision.state, decision.rung) == (RepairState.SENT, Rung.HAND_OVER)


def test_newest_copy_is_found_in_any_order() -> None:
    older, newer = replace(HALF, commit_log_offset=1), replace(HALF, commit_log_offset=2)
    assert newest_per_broker([newer, older]) == newest_per_broker([older, newer]) == {"broker-a": newer}


def test_pass_that_never_ends_is_given_up_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.policy.repairing.repair.STEPS_MAX", 1)
    world = World()
    lost = world.lose(1)
    world.broker.halves = []
    world.clock.advance(60)
    process = world.process()
    process.keys_by_hand.judge_one(world.subscriptions[0], lost)
    world.ledger.rows.repairs["test", "ORDERS", "*", lost] = replace(world.repair(lost) or OPEN_ROW, rung=Rung.END)
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == ("waits", GOES_ON_LATER())


# ---- for any evidence

LOOKUP = st.sampled_from([None, ABSENT, UNKNOWN])
OUTBOX = (
    ABSENT, UNKNOWN, found(ROW), found(replace(ROW, state=OutboxState.ROLLED_BACK)), found(replace(ROW, body=b"kept"))
)  # fmt: skip
STATES = st.sampled_from([RepairState.OPEN, RepairState.SENDING, RepairState.SENT])
CASES = st.builds(
    case,
    state=STATES,
    rung=st.sampled_from(list(Rung)),
    attempts=st.integers(0, ATTEMPTS_MAX + 1),
    sent_at_ms=st.sampled_from([None, NOW - 1_000, NOW - 6_000, NOW - 40_000]),
    evidence=st.sampled_from([*[(WORLD.topic.evidence, answer) for answer in OUTBOX], (CommitEvidence(()), UNKNOWN),
                              (evidence(None), UNKNOWN), (evidence(None), None)]),
    inboxes=st.fixed_dictionaries({g: st.sampled_from([ABSENT, UNKNOWN, EFFECT]) for g in ("billing", "shipping")}),
    copies=LOOKUP | st.just(found(COPY)),
    halves=LOOKUP | st.just(found(HALF)),
    parked=LOOKUP | st.just(found(HALF)),
    group_positions=st.none() | st.fixed_dictionaries({g: st.sampled_from([
        Verdict.LAGGING, Verdict.DELIVERED_NOT_APPLIED, Verdict.DEAD_LETTERED, Verdict.CONSUMED, Verdict.UNKNOWN])
        for g in ("billing", "shipping")}),
    is_noted=st.sampled_from([None, False, True]),
    hand_overs=st.sampled_from([None, (), (replace(OPEN_ROW, scope="billing", state=RepairState.DONE),),
                          (replace(OPEN_ROW, scope="billing", state=RepairState.FAILED),)]),
)  # fmt: skip
ANSWERS = st.sampled_from([SendAnswer(outcome=outcome, code=code) for outcome in EndOutcome for code in (None, 1)])


@pytest.mark.promise("G2")
@settings(max_examples=examples(600), deadline=None)
@given(CASES)
def test_whatever_is_known_nothing_is_sent_without_proof(one: RepairCase) -> None:
    answer = decide(one)
    if isinstance(answer, Question):
        groups = [one.of_group[plan.group] for plan in one.plans_asked(answer)]
        asked: dict[Question, list[object]] = {
            Question.COMMITTED_COPIES: [one.copies], Question.HALF_COPIES: [one.halves],
            Question.PARKED_COPIES: [one.parked], Question.HAND_OVERS: [one.hand_overs],
            Question.INBOX_AGAIN: [group.inbox_again for group in groups],
            Question.GROUP_COPIES: [group.copies for group in groups],
            Question.CONSUME_MODE: [group.consume_mode for group in groups],
            Question.NOTED_HALVES: [one.is_noted],
        }  # fmt: skip
        assert set(map(type, asked[answer])) == {type(None)}, "a question is asked once, and about somebody"
        return
    require_legal(one.repair.state, answer.state)
    if answer.act in (Act.END, Act.REPUBLISH, Act.HAND_OVER):
        if one.has_outbox:
            assert one.commit is not None
        else:
            assert one.topic.evidence == evidence(None), "the weaker mode is declared"
            assert one.is_noted is False, "its announcement is not its half"
        assert one.repair.attempts < ATTEMPTS_MAX
        assert one.missing
        assert answer.subject.producer_group == ROW.producer_group
    if answer.act in (Act.END, Act.REPUBLISH):
        assert one.copies is not None
        assert not one.copies.is_unknown
        positions = one.group_positions()
        unapplied = not isinstance(positions, Question) and Verdict.DELIVERED_NOT_APPLIED in positions.values()
        assert one.copies.is_absent or (unapplied and one.waited_seconds >= one.patience_seconds)
    if answer.act is Act.CLOSE:
        assert not one.missing or (one.hand_overs and all(row.state is RepairState.DONE for row in one.hand_overs))
    if answer.state is RepairState.DONE and one.hand_overs is None:
        assert not one.missing


@settings(max_examples=examples(150), deadline=None)
@given(CASES, ANSWERS)
def test_only_a_certain_answer_moves_a_send_on(one: RepairCase, answer: SendAnswer) -> None:
    sending = replace(one, repair=replace(one.repair, state=RepairState.SENDING))
    decision = after_answer(sending, answer)
    require_legal(RepairState.SENDING, decision.state)
    assert re.match(rf"{answer.outcome.name}\b", said(decision.reason)), "people read it beside the repair"
    assert (decision.state is RepairState.SENT) == (answer.outcome is EndOutcome.DONE)
    if answer.outcome is EndOutcome.NO_ANSWER:
        assert decision.state is RepairState.SENDING
        assert decision.wait_seconds >= 5.0


def test_a_send_without_a_proof_is_refused_even_if_it_was_decided() -> None:
    assert case(outbox=found(ROW)).proof_of(HALF) == ROW.seen.commit
    assert case(evidence=(evidence(None), UNKNOWN)).proof_of(HALF).content_digest == HALF.content_digest
    tombstone = found(replace(ROW, state=OutboxState.ROLLED_BACK))
    in_outbox, nothing = WORLD.topic.evidence, CommitEvidence(())
    for sources, outbox in ((in_outbox, ABSENT), (in_outbox, UNKNOWN), (in_outbox, tombstone), (nothing, UNKNOWN)):
        with pytest.raises(InvariantViolation, match="nothing is sent"):
            case(evidence=(sources, outbox)).proof_of(HALF)
