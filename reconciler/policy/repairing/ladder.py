"""Step 10 as pure functions: decides from evidence alone what to do next with a repair (states: case.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import (
    ACKNOWLEDGED,
    ANSWERED,
    ANSWERED_WITH,
    BEYOND_INBOX,
    BY_FORMER_NAME,
    COPY_FOUND,
    COPY_THERE,
    DEAD_LETTERED_BY,
    EFFECT_SEEN,
    ENDED_OR_ASKED,
    HALVES_CLOSED,
    HAND_OVER_FAILED,
    HEALED,
    NO_ANSWER,
    NO_HALF,
    NO_OUTBOX,
    NO_RUNG,
    NOT_COMMITTED,
    NOT_EXECUTED,
    NOTHING_TO_SEND,
    POSITION,
    POSITIONS,
    RUNG_TAKEN_OUT,
    SENT_ANEW,
    SENT_LATE,
    TAKEN_BY_NOBODY,
    TOO_OFTEN,
    UNCONSUMED,
    WAITS_FOR_EFFECT,
    WAITS_FOR_PUT_BACK,
    WAITS_FOR_WORKERS,
    WITHDRAWS,
    WOULD_REACH,
)  # fmt: skip
from reconciler.contract.reasons import EFFECT_UNKNOWN, HALVES_UNKNOWN, MEND, NO_READABLE_COPY
from reconciler.contract.row_rules import FINISHED_REPAIRS, is_repair_due
from reconciler.contract.tables import RepairState, Rung
from reconciler.contract.unique_key import is_digits
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import EndOutcome, Lookup, SendAnswer, StoredMessage
from reconciler.policy.inquiry.business import doubt_of_announcement
from reconciler.policy.inquiry.case_file import Question
from reconciler.policy.inquiry.delivery import (
    contradiction,
    copies_unknown,
    half_unknown,
    kept_message,
    newest_per_broker,
)
from reconciler.policy.ports.ledger import Repair
from reconciler.policy.repairing.by_row import proved_by_row, second_effect, sent_anew
from reconciler.policy.repairing.case import (
    ATTEMPTS_MAX,
    DAMAGED_SECONDS_MAX,
    HELD_BACK_SECONDS_MAX,
    SEND_MARGIN_MS,
    SENT_WAIT_SECONDS_MAX,
    RepairCase,
    RepairStep,
    back_off_seconds,
)
from reconciler.policy.repairing.rungs import Act, next_rung

_EFFECT_SEEN, _COPY_THERE, _WAITS_FOR_WORKERS = EFFECT_SEEN(), COPY_THERE(), WAITS_FOR_WORKERS()


def decide(case: RepairCase) -> Question | RepairStep:
    """Returns the next act or the next question."""
    if not case.missing:
        return _every_effect_seen(case)
    match case.repair.state:
        case RepairState.OPEN:
            return _unless_damaged(case, _once_by_every_name(case, _open(case)))
        case RepairState.SENDING:
            return _once_by_every_name(case, _sending(case))
        case _:
            return _sent(case)


def _unless_damaged(case: RepairCase, answer: Question | RepairStep) -> Question | RepairStep:
    """Fails a repair that waits for an unreadable value and has sent nothing, because such a value never cures
    itself."""
    if isinstance(answer, Question) or answer.state is not RepairState.OPEN or answer.goes_on:
        return answer
    if case.damage is None or case.waited_seconds < DAMAGED_SECONDS_MAX:
        return answer
    return _damaged(case, case.damage)


def _write(case: RepairCase, state: RepairState, reason: Fact, *, rung: Rung | None = None,
           wait_seconds: float = 0.0, goes_on: bool = False) -> RepairStep:  # fmt: skip
    return RepairStep(
        act=Act.WRITE,
        state=state,
        rung=case.repair.rung if rung is None else rung,
        reason=reason,
        wait_seconds=wait_seconds,
        goes_on=goes_on,
    )


def _wait(case: RepairCase, reason: Fact, seconds: float | None = None) -> RepairStep:
    usual = case.usual_wait_seconds
    if case.repair.state is RepairState.SENT:
        # A group that consumes nothing for hours keeps every repair SENT. Such repairs are looked at more and more
        # rarely, but never dropped.
        usual = max(usual, min(case.waited_seconds / 4, SENT_WAIT_SECONDS_MAX))
    return _write(case, case.repair.state, reason, wait_seconds=usual if seconds is None else seconds)


def _failed(case: RepairCase, reason: Fact) -> RepairStep:
    return _write(case, RepairState.FAILED, reason)


def _damaged(case: RepairCase, damage: Fact) -> RepairStep:
    return _failed(case, MEND(damage=damage))


# --------------------------------------------------------------------------- the effect exists


def _every_effect_seen(case: RepairCase) -> Question | RepairStep:
    if case.repair.state is not RepairState.SENT:
        return _write(case, RepairState.SENT, _EFFECT_SEEN, goes_on=True)
    if case.repair.is_unsent:
        return _done(case, HEALED())
    if case.rung.proof is Question.HAND_OVERS:
        # The effect is committed before its row: a worker may still hold the row, and a failed row is for a person. A
        # row that was not run is withdrawn, because its worker could run it after the effect's inbox row was deleted.
        if case.hand_overs is None:
            return Question.HAND_OVERS
        if case.hand_overs:
            return _handed_over(case, case.hand_overs)
    return _finish(case)


def _finish(case: RepairCase) -> Question | RepairStep:
    """Makes the repair DONE. Before that, the broker is stopped from asking about half copies that no longer matter."""
    if case.waited_seconds < case.verify_after_seconds:
        # 5.1+ writes OP records up to 3 s late: a check in between puts the half back once more.
        return _wait(case, WAITS_FOR_PUT_BACK(), case.verify_after_seconds - case.waited_seconds)
    if case.own_copies is None:
        return Question.COMMITTED_COPIES
    if case.own_halves is None:
        return Question.HALF_COPIES
    unknown = [lookup.reason for lookup in (case.own_copies, case.own_halves) if lookup.is_unknown]
    if unknown:
        return _wait(case, HALVES_UNKNOWN(why=unknown[0]))
    if case.own_copies.is_absent and case.is_taken_by_nobody:
        return _done(case, TAKEN_BY_NOBODY())  # the half may be the only copy of the message, so it stays open
    still_open = open_halves(case)
    # A query proves only that some transaction with its key was committed. Another half of the key may still be
    # answered.
    if still_open and not case.topic.evidence.asks_business:
        done = _done(case, HALVES_CLOSED())
        return replace(done, act=Act.CLOSE, halves=still_open)
    return _done(case, _EFFECT_SEEN)


def _done(case: RepairCase, reason: Fact) -> RepairStep:
    """Returns DONE, unless the effect is of another message."""
    other = case.other_content
    return _write(case, RepairState.DONE, reason) if other is None else _failed(case, other)


def open_halves(case: RepairCase) -> tuple[StoredMessage, ...]:
    """Returns the newest half copies (4.3 and newer) without a committed copy. About these halves the broker still
    asks."""
    copies = case.own_copies.records if case.own_copies is not None else ()
    halves = case.own_halves.records if case.own_halves is not None else ()
    closed = {(copy.broker, copy.prepared_transaction_offset) for copy in copies}
    return tuple(
        half
        for half in newest_per_broker(halves).values()
        if half.topic != half.real_topic and (half.broker, half.commit_log_offset) not in closed
    )


# --------------------------------------------------------------------------- OPEN


def _open(case: RepairCase) -> Question | RepairStep:
    by_query = case.topic.sends_by_query
    unproved = None if by_query else _commit_unproved(case)
    refused = _too_often(case) or unproved or _verdict_unread(case) or _effect_unknown(case)
    if refused is not None:
        return refused
    copies = _copies(case)
    if not isinstance(copies, Lookup):
        return copies
    if copies.is_found:
        settled = _copy_found(case)
        if settled is not None:
            return settled
        if by_query:
            return _wait(case, _COPY_THERE)  # a row of the business never allows a second copy of a message
    if case.repair.rung not in case.topic.repair_order:
        return _climb(case, RUNG_TAKEN_OUT(rung=str(case.repair.rung)))
    if case.spared and not case.rung.is_per_group:
        return _climb(case, WOULD_REACH(rung=str(case.repair.rung), groups=case.spared))
    answer = _end(case) if case.rung.needs_half else _send_again(case)
    repair = case.repair
    doubt = case.given_perhaps(repair.created_at_ms, now_ms=case.now_ms, sent_ms=repair.sent_at_ms)
    if doubt is not None:
        return _failed(case, doubt)
    return _proved_by_row(case, answer) if by_query else answer


def _proved_by_row(case: RepairCase, answer: Question | RepairStep) -> Question | RepairStep:
    """Decides about a send that rests on a row of the business."""
    if isinstance(answer, Question) or answer.act not in (Act.END, Act.REPUBLISH, Act.HAND_OVER):
        return answer
    if case.rung.is_per_group:
        return _commit_unproved(case) or answer  # only an outbox has the message for a worker's handler
    if case.own_parked is None:
        return Question.PARKED_COPIES
    if case.own_parked.is_unknown:
        return _unreadable(case, case.own_parked)
    if answer.act is Act.REPUBLISH and case.own_parked.is_absent:
        return _wait(case, ENDED_OR_ASKED())  # a row proves a commit of the key, and not of this half
    send = proved_by_row(case, answer)
    if isinstance(send, Question) or send.act is not answer.act:
        return send
    if case.plans_asked(Question.EFFECT_QUERY):
        return Question.EFFECT_QUERY
    return _not_delivered_since(case, send)


def _not_delivered_since(case: RepairCase, send: RepairStep) -> Question | RepairStep:
    """Checks again for a copy before the send, because rows, half queues and producers took their time. A producer may
    have answered and left meanwhile."""
    if (again := case.copies_again) is None:
        return Question.COPIES_AGAIN
    if again.is_found:
        return _wait(case, _COPY_THERE)
    if case.of_key is None:
        return Question.MESSAGES_OF_KEY
    others = sent_anew(case.of_key, case, send.subject)
    if others.is_found:
        return _failed(case, SENT_ANEW(unique_key=others.records[-1].unique_key, word=case.key_word or ""))
    if unknown := [lookup for lookup in (again, others) if lookup.is_unknown]:
        return _wait(case, copies_unknown(unknown[0]))
    # Where an effect query has found the effect, no inbox skips another copy.
    applied = dict.fromkeys(case.applied_by_query, Verdict.CONSUMED)
    return _failed(case, second_effect(_positions(applied))) if applied else send


def _copies(case: RepairCase) -> Lookup[StoredMessage] | Question | RepairStep:
    """Returns the committed copies. Before they are known, returns the question, or the wait for an answer."""
    copies = case.own_copies
    if copies is None:
        return Question.COMMITTED_COPIES
    return _wait(case, copies_unknown(copies)) if copies.is_unknown else copies


def by_hand(case: RepairCase) -> Question | RepairStep:
    """Decides about a hand-over that a person asks for, whatever was sent before. The questions are those before every
    send, for the one group of the case. A step without a send says why nothing is sent."""
    refused = _commit_unproved(case) or _verdict_unread(case) or _effect_unknown(case)
    if refused is not None:
        return refused
    copies = _copies(case)
    if not isinstance(copies, Lookup):
        return copies
    return _once_by_every_name(case, _send_again(case))


def _beyond_inbox(case: RepairCase, message: StoredMessage) -> RepairStep | None:
    """Refuses a message that is older than a group keeps its inbox rows, because the message may have had its effect
    there."""
    written_ms = case.message.created_at_ms if case.message is not None else message.born_timestamp_ms
    unsure = [
        plan.group
        for plan in case.missing
        if case.of_group[plan.group].shows_effects and not plan.inbox_reaches(written_ms, now_ms=case.now_ms)
    ]
    if not unsure:
        return None
    return _failed(case, BEYOND_INBOX(groups=tuple(sorted(unsure))))


def _too_often(case: RepairCase) -> RepairStep | None:
    if case.repair.attempts < ATTEMPTS_MAX:
        return None
    return _failed(case, TOO_OFTEN(attempts=case.repair.attempts))


def _commit_unproved(case: RepairCase) -> Question | RepairStep | None:
    if not case.has_outbox:
        if not case.topic.evidence.trusts_announcements:
            return _wait(case, NO_OUTBOX())
        doubt = doubt_of_announcement(case)
        return _wait(case, doubt) if isinstance(doubt, Fact) else doubt
    if case.outbox_unknown is not None:
        return _wait(case, case.outbox_unknown)
    if case.commit is None:
        return _failed(case, NOT_COMMITTED())
    contradicted = contradiction(case.outbox)
    return None if contradicted is None else _failed(case, contradicted)


def _verdict_unread(case: RepairCase) -> RepairStep | None:
    """Waits if a group's verdict cannot be read, because that verdict may say that a person has dismissed the group."""
    why = case.unread_verdict
    if why is None:
        return None
    if case.waited_seconds < DAMAGED_SECONDS_MAX:
        return _wait(case, why)
    return _damaged(case, why)


def _effect_unknown(case: RepairCase) -> RepairStep | None:
    """Waits if the effects are unknown: after the proof of the loss, a group may have got its effect another way."""
    if case.effect_unknown is None:
        return None
    return _wait(case, EFFECT_UNKNOWN(why=case.effect_unknown))


def _copy_found(case: RepairCase) -> Question | RepairStep | None:
    """Waits for a copy that exists before a send, unless a missing group has passed the copy without an effect."""
    first_try = case.repair.attempts == 0 or case.waited_seconds < case.patience_seconds
    if first_try:
        return _write(case, RepairState.SENT, _COPY_THERE, wait_seconds=case.verify_after_seconds)
    positions = case.group_positions()
    if isinstance(positions, Question):
        return positions
    if unapplied := _unapplied(positions):
        return _by_group_positions(case, positions) if _may_be_applied(case, unapplied) else None
    there = _write(case, RepairState.SENT, _COPY_THERE, wait_seconds=case.verify_after_seconds)
    return _dead_lettered(case, positions) or there


def _end(case: RepairCase) -> Question | RepairStep:
    if case.own_halves is None:
        return Question.HALF_COPIES
    if case.own_halves.is_unknown:
        return _wait(case, half_unknown(case.own_halves))
    newest = newest_per_broker(case.own_halves.records)
    if not newest:
        return _climb(case, NO_HALF())
    row = case.row
    # A retried send leaves halves with the same key on another broker. One half is committed; the others are closed at
    # the end.
    first = row.half_broker if row is not None else None
    half = newest[first] if first in newest else next(iter(newest.values()))
    return _send(case, half)


def _send_again(case: RepairCase) -> Question | RepairStep:
    source = message_to_send(case)
    if isinstance(source, Question):
        return source
    if source is None:
        unknown = [lookup for lookup in (case.own_halves, case.own_parked) if lookup is not None and lookup.is_unknown]
        if unknown:
            return _unreadable(case, unknown[0])
        return _failed(case, NOTHING_TO_SEND())
    return _send(case, source)


def _send(case: RepairCase, message: StoredMessage) -> RepairStep:
    """Returns the send of the repair's rung, unless a group may have deleted the row of the message's effect."""
    return _beyond_inbox(case, message) or RepairStep(
        act=case.rung.act,
        state=RepairState.SENDING,
        rung=case.repair.rung,
        reason=case.rung.reason,
        message=message,
        groups=tuple(p.group for p in case.missing) if case.rung.is_per_group else (),
    )


def _unreadable(case: RepairCase, lookup: Lookup[StoredMessage]) -> RepairStep:
    return _wait(case, NO_READABLE_COPY(why=lookup.reason))


def message_to_send(case: RepairCase) -> StoredMessage | Question | None:
    """Returns the half, or else the parked copy, the committed copy or the outbox body, in this order. Only the half
    has every field."""
    if case.own_halves is None:
        return Question.HALF_COPIES
    if case.own_halves.is_found:
        return case.own_halves.records[-1]
    if case.own_parked is None:
        return Question.PARKED_COPIES
    if case.own_parked.is_found:
        return case.own_parked.records[-1]
    if case.own_copies is not None and case.own_copies.is_found:
        return case.own_copies.records[-1]
    return kept_message(case.commit)


def _once_by_every_name(case: RepairCase, answer: Question | RepairStep) -> Question | RepairStep:
    """Restricts a send if the effect may have a former name and a copy exists: only groups that have acknowledged the
    copy without an effect get the message. A stored body is not sent once a copy may have been deleted.

    A plug-in up to 0.2.0 takes each copy for a message of its own. If the first copy has its effect, or will have it,
    the next copy would have another effect.
    """
    if isinstance(answer, Question) or answer.act is not case.rung.act or is_digits(case.unique_key):
        return answer
    copies = _copies(case)
    if not isinstance(copies, Lookup):
        return copies
    if not case.rung.is_per_group:
        if case.hand_overs is None:
            return Question.HAND_OVERS
        if any(row.state not in FINISHED_REPAIRS for row in case.hand_overs):
            return _wait(case, _WAITS_FOR_WORKERS)
    if copies.is_absent:
        return _beyond_names(case) or answer
    positions = case.group_positions()
    if isinstance(positions, Question):
        return positions
    not_yet = {
        group: verdict
        for group, verdict in positions.items()
        if case.of_group[group].has_inbox and verdict is not Verdict.DELIVERED_NOT_APPLIED
    }
    by_former_names = tuple(BY_FORMER_NAME(group=group) for group in case.known_by_former_names)
    why = _positions(not_yet, *by_former_names)
    if case.rung.is_per_group:
        groups = tuple(group for group in answer.groups if group not in not_yet)
        return replace(answer, groups=groups) if groups else _dead_lettered(case, not_yet) or _wait(case, why)
    if not (by_former_names or not_yet):
        return answer
    if not case.known_by_former_names and next_rung(case.topic.repair_order, case.repair.rung) is None:
        return _dead_lettered(case, not_yet) or _wait(case, why)
    return _climb(case, second_effect(why))


def _beyond_names(case: RepairCase) -> RepairStep | None:
    """Refuses a send if a copy may be gone. While the first half copy exists, every copy that was made from it exists,
    too. Only groups with an inbox record effects by names."""
    if case.shows_first_half:
        return None
    if not any(case.of_group[plan.group].has_inbox for plan in case.missing):
        return None
    proved_ms = case.repair.created_at_ms
    written_ms = proved_ms if case.message is None else min(case.message.created_at_ms, proved_ms)
    if case.tells_former_names(written_ms, now_ms=case.now_ms):
        return None
    return _failed(case, SENT_LATE())


def _climb(case: RepairCase, reason: Fact) -> RepairStep:
    """Returns the next rung, to be tried at once."""
    rung = next_rung(case.topic.repair_order, case.repair.rung)
    if rung is None:
        return _failed(case, NO_RUNG(why=reason))
    return _write(case, RepairState.OPEN, reason, rung=rung, goes_on=True)


# --------------------------------------------------------------------------- SENDING


def _sending(case: RepairCase) -> Question | RepairStep:
    """Decides about a send without an answer, by its traces."""
    copies = _copies(case)
    if not isinstance(copies, Lookup):
        return copies
    if case.rung.proof is Question.HAND_OVERS:
        # Inserting the rows again is harmless, and nothing else shows whether they exist.
        return _too_often(case) or _commit_unproved(case) or _send_again(case)
    if copies.is_found:
        return _write(case, RepairState.SENT, COPY_FOUND(), wait_seconds=case.verify_after_seconds)
    return _write(case, RepairState.OPEN, NOT_EXECUTED(), goes_on=True)


def after_answer(case: RepairCase, answer: SendAnswer) -> RepairStep:
    """Returns the step that follows from the answer to END COMMIT or a republish of the SENDING repair."""
    said = _said(answer)
    match answer.outcome:
        case EndOutcome.DONE:
            return _write(case, RepairState.SENT, said, wait_seconds=case.verify_after_seconds)
        case EndOutcome.NO_ANSWER:
            wait = max(SEND_MARGIN_MS / 1000, back_off_seconds(case.repair.attempts))
            return _write(case, RepairState.SENDING, said, wait_seconds=wait)
        case EndOutcome.HALF_GONE:
            return _climb(case, said)
        case EndOutcome.NOT_SENT if case.rung.climbs_when_not_sent:
            # The message is too large, or differs from the half: another try would not change that.
            return _climb(case, said)
        case EndOutcome.HELD_BACK:
            is_young = case.now_ms - case.repair.created_at_ms < HELD_BACK_SECONDS_MAX * 1000
            wait = case.usual_wait_seconds if is_young else back_off_seconds(case.repair.attempts)
            return replace(_write(case, RepairState.OPEN, said, wait_seconds=wait), takes_back_attempt=is_young)
        case _:
            # REFUSED_FOR_NOW, MISMATCH and a half that is not the expected one: certainly not executed, so look again.
            return _write(case, RepairState.OPEN, said, wait_seconds=back_off_seconds(case.repair.attempts))


def _said(answer: SendAnswer) -> Fact:
    outcome = str(answer.outcome)
    said = f"{'' if answer.code is None else answer.code} {answer.detail}".strip()
    return ANSWERED_WITH(outcome=outcome, said=said) if said else ANSWERED(outcome=outcome)


# --------------------------------------------------------------------------- SENT


def _sent(case: RepairCase) -> Question | RepairStep:
    if case.rung.proof is Question.HAND_OVERS and case.repair.attempts > 0:
        if case.hand_overs is None:
            return Question.HAND_OVERS
        if case.hand_overs:
            return _handed_over(case, case.hand_overs)
    if case.waited_seconds < case.patience_seconds:
        return _wait(case, WAITS_FOR_EFFECT())
    if case.has_outbox and case.outbox_unknown is not None and not case.has_damaged_outbox:
        # Without the tag of its message, a group that does not take the message looks like a group that passed it
        # without an effect.
        return _wait(case, case.outbox_unknown)
    copies = _copies(case)
    if not isinstance(copies, Lookup):
        return copies
    if copies.is_absent:
        gone = case.gone_copy
        return _failed(case, gone) if gone else _write(case, RepairState.OPEN, UNCONSUMED(), goes_on=True)
    positions = case.group_positions()
    return positions if isinstance(positions, Question) else _by_group_positions(case, positions)


def _handed_over(case: RepairCase, rows: Sequence[Repair]) -> Question | RepairStep:
    if case.unneeded:
        return _withdrawn(case)
    failed = [row for row in rows if row.state is RepairState.FAILED]
    if failed:
        return _failed(case, HAND_OVER_FAILED(group=failed[0].scope, why=failed[0].why or NO_ANSWER()))
    if all(row.state is RepairState.DONE for row in rows):
        return _finish(case)
    return _wait(case, _WAITS_FOR_WORKERS)


def _withdrawn(case: RepairCase) -> RepairStep:
    """Ends free hand-over rows before the repair ends, because nobody reads them afterwards.

    A row that a worker holds or has put off is awaited: the worker finds the effect, or its claim ends.
    """
    free = tuple(row for row in case.unneeded if _is_free(row, case.now_ms))
    if not free:
        return _wait(case, _WAITS_FOR_WORKERS)
    return RepairStep(
        act=Act.WITHDRAW,
        state=case.repair.state,
        rung=case.repair.rung,
        reason=WITHDRAWS(groups=tuple(row.scope for row in free)),
        rows=free,
        goes_on=True,
    )


def _is_free(row: Repair, now_ms: int) -> bool:
    """Returns True if the row is due and has no living claim. Repairs.claimable has the same rule."""
    return is_repair_due(row.next_at_ms, now_ms=now_ms) and (row.lease_until_ms is None or row.lease_until_ms < now_ms)


def _unapplied(positions: Mapping[str, Verdict]) -> tuple[str, ...]:
    return tuple(sorted(group for group, verdict in positions.items() if verdict is Verdict.DELIVERED_NOT_APPLIED))


def _may_be_applied(case: RepairCase, unapplied: Sequence[str]) -> bool:
    return any(map(case.was_lost_without_inbox, unapplied))


def _by_group_positions(case: RepairCase, positions: Mapping[str, Verdict]) -> RepairStep:
    if unapplied := _unapplied(positions):
        reason = ACKNOWLEDGED(groups=unapplied)
        # The group's reaction is only reported in two cases. Nothing was sent, because the message was delivered after
        # all. Or a group that had no inbox earlier may have applied the message without a row.
        is_reported = not case.repair.attempts or _may_be_applied(case, unapplied)
        return _failed(case, reason) if is_reported else _climb(case, reason)
    return _dead_lettered(case, positions) or _wait(case, _positions(positions))


def _positions(positions: Mapping[str, Verdict], *others: Fact) -> Fact:
    where = (POSITION(group=group, verdict=str(verdict)) for group, verdict in sorted(positions.items()))
    return POSITIONS(groups=(*others, *where))


def _dead_lettered(case: RepairCase, positions: Mapping[str, Verdict]) -> RepairStep | None:
    """Fails the repair for a dead-lettered message, because the group would refuse another copy, too. If a person sends
    the dead letter again, its effect ends the repair.

    A group that shows no effects and has passed the copy shows nothing more, however long we wait.
    """
    told = {g: v for g, v in positions.items() if v is not Verdict.UNKNOWN or case.of_group[g].shows_effects}
    if not told or any(verdict is not Verdict.DEAD_LETTERED for verdict in told.values()):
        return None
    return _failed(case, DEAD_LETTERED_BY(groups=tuple(sorted(told))))
