"""Step 9 as a pure function: turns what is known about a key into a verdict, or into the next question. Cheap questions
come first.

The questions are grouped in *stages* (docs/explanation/how-it-works.md). `judge` never guesses: if a witness did not
answer, the verdict is UNKNOWN and the key stays pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.contract.facts import Fact
from reconciler.contract.query_answers import YOUNG as TRANSACTION_MAY_RUN
from reconciler.contract.reasons import (
    BY_SQL92,
    CHECK_BACK,
    CONSUMED,
    CONSUMED_BY_QUERY,
    COPY_GONE,
    DAMAGED,
    DEAD_LETTERED,
    DELIVERED,
    EFFECT_QUERY_UNKNOWN,
    FILTER_UNKNOWN,
    GATE_SHUT,
    GIVEN_BEFORE,
    GIVEN_UP,
    GROUP_UNKNOWN,
    HALF_FOUND,
    INBOX_UNKNOWN,
    INCOMPLETE,
    LAGGING,
    MODE_UNKNOWN,
    NO_COPY,
    NO_KEY_COPY,
    NO_OWN_COPY,
    NO_ROW,
    NOT_CHECKED,
    NOT_COMPARED,
    NOT_TAKEN,
    OTHER_COPIES,
    OTHER_EFFECT,
    OUTBOX_NOT_ASKED,
    PARKED,
    PARKED_AND_HALF,
    PARKED_UNKNOWN,
    PASSED,
    PASSED_BY_QUERY,
    POPPED,
    POPPED_WITHOUT_INBOX,
    REPAIR_OVER,
    REPAIR_OVER_SILENT,
    ROLLED_BACK,
    ROLLED_BACK_WRONGLY,
    UNDER_REPAIR,
    UNPROVED,
    WITHOUT_INBOX,
    YOUNG,
)
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import LOSSES, QUARANTINING, SETTLING, WAITING, Undecided, Verdict
from reconciler.policy.commit_query import BusinessAnswer, is_committed
from reconciler.policy.evidence import ConsumeMode, FilterKind, InboxRow, Lookup, StoredMessage
from reconciler.policy.inquiry.business import doubt_of_announcement, why_not_committed
from reconciler.policy.inquiry.case_file import Question
from reconciler.policy.inquiry.delivery import (
    contradiction,
    copies_unknown,
    difference,
    disagreement,
    double_effect,
    half_unknown,
    kept_message,
    other_content,
    outbox_unknown,
    reach,
    suspicion,
    why_unknown,
)
from reconciler.policy.judging.effects import doubt_of_half, may_own_effect, why_row_may_be_gone
from reconciler.policy.judging.siblings import SiblingDoubt, delivered_sibling, doubt_of_siblings
from reconciler.policy.judging.suspect import COMMIT_QUERY, Suspect
from reconciler.policy.plan import SubscriptionPlan

#: A service announces its row within this time or the grace period. A later announcement is a repetition.
OWN_ANNOUNCEMENT_SECONDS_MAX = 60.0
#: After this many consecutive looks at an unreadable value, a person must look: about twelve minutes with the waits of
#: UNKNOWN. A witness that is away does not count, because it comes back by itself.
DAMAGED_LOOKS_MAX = 15
#: Pause before the next look at a key of a group that filters by SQL92, because such a filter cannot be evaluated here.
SQL92_WAIT_SECONDS = 3600.0
#: Verdicts that may also mean that a filter left the message out.
_FILTERED_PERHAPS = frozenset({Verdict.DELIVERED_NOT_APPLIED, Verdict.EXPIRED})
#: Losses that are proved by a half or a parked half.
_OF_HALVES = frozenset({Verdict.LOST_CONFIRM, Verdict.PARKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its reason."""

    verdict: Verdict
    reason: Fact
    #: Seconds during which the verdict cannot change. None: the usual back-off.
    wait_seconds: float | None = None
    #: For UNKNOWN: the cause that prevents a decision. None: only time does.
    undecided_by: Undecided | None = None


Answer = Judgement | Question | None

#: Verdicts that no copy on a broker has proved.
_UNSEEN = frozenset({Verdict.UNKNOWN, Verdict.REJECTED})


def judge(suspect: Suspect) -> Judgement | Question:
    """Returns the verdict, or the next question."""
    for stage in (
        _effect, _under_repair, _wanted, _unheard_of, _gate, _commit, _committed_copy, _trusted, _effect_without_copy,
        _young, _half, _parked,
    ):  # fmt: skip
        answer: Answer = stage(suspect)
        if answer is not None:
            break
    else:
        answer = _everything_absent(suspect)
    answer = _unless_filtered(_unless_given_before(_unless_deleted(answer, suspect), suspect), suspect)
    return _unforgotten(_after_repair(_beyond_inbox(_damaged(answer, suspect), suspect), suspect), suspect)


def state_of(verdict: Verdict) -> CandidateState:
    """Returns the state of a verdict. Keys that are SETTLED or QUARANTINED leave pending; OPEN keys stay."""
    if verdict in SETTLING:
        return CandidateState.SETTLED
    return CandidateState.QUARANTINED if verdict in QUARANTINING else CandidateState.OPEN


def missed_commit(suspect: Suspect) -> Judgement | None:
    """Returns UNKNOWN if a half shows that some outbox has its row, and no outbox shows the row. Then the outbox that
    was asked is the wrong one, or only a part of the right one.

    No verdict on such a key would be proved: a former primary, a clone and another schema answer like the outbox.
    """
    for named in suspect.named_outboxes:
        if (missed := suspect.topic.evidence.missed_row(named, suspect.outbox)) is not None:
            return Judgement(verdict=Verdict.UNKNOWN, reason=missed, undecided_by=Undecided.CONTRADICTION)
    return None


def rejected(suspect: Suspect) -> Judgement:
    """Returns the verdict on an announced key of which every outbox shows that it has no committed row."""
    return Judgement(verdict=Verdict.REJECTED, reason=NO_ROW() if suspect.row is None else ROLLED_BACK())


def incomplete_effect(halfway: Fact) -> Fact:
    """Returns the fact that an inbox has the key, and that its effect may be incomplete."""
    return INCOMPLETE(why=halfway)


def _effect(suspect: Suspect) -> Answer:
    """Stage 1: looks at the group's inbox, or at the answer of its effect query."""
    if suspect.group.asks_effects:
        return _effect_by_query(suspect.inbox)
    if not suspect.group.has_inbox:
        return None
    inbox = suspect.inbox
    if inbox is None:
        return Question.INBOX
    if (halfway := inbox.incomplete) is not None:
        return Judgement(verdict=Verdict.INCOMPLETE, reason=incomplete_effect(halfway))
    if inbox.is_unknown:
        return _unknown(INBOX_UNKNOWN(why=inbox.reason), Undecided.WITNESS)
    if inbox.is_absent:
        return None
    if (doubled := double_effect(inbox)) is not None:
        return Judgement(verdict=Verdict.COLLISION, reason=doubled)
    if suspect.has_outbox and suspect.outbox is None:
        return Question.OUTBOX
    if suspect.outbox is not None and suspect.has_outbox and suspect.outbox.is_unknown:
        return _unknown(NOT_COMPARED(why=suspect.outbox.reason), suspect.outbox.undecided_by)
    if (contradicted := _contradicted(suspect)) is not None:
        return contradicted
    if (other := other_content(inbox, suspect.message, topic=suspect.topic.topic)) is not None:
        return Judgement(verdict=Verdict.COLLISION, reason=OTHER_EFFECT(why=other))
    return Judgement(verdict=Verdict.CONSUMED, reason=CONSUMED())


def _effect_by_query(answer: Lookup[InboxRow] | None) -> Judgement | None:
    if answer is None or answer.is_absent:
        return None
    if answer.is_unknown:
        return _unknown(EFFECT_QUERY_UNKNOWN(why=answer.reason), Undecided.WITNESS)
    return Judgement(verdict=Verdict.CONSUMED, reason=CONSUMED_BY_QUERY())


def _unknown(reason: Fact, by: Undecided | None = None, *, wait_seconds: float | None = None) -> Judgement:
    return Judgement(verdict=Verdict.UNKNOWN, reason=reason, wait_seconds=wait_seconds, undecided_by=by)


def _contradicted(suspect: Suspect) -> Judgement | None:
    reason = contradiction(suspect.outbox)
    return None if reason is None else Judgement(verdict=Verdict.COLLISION, reason=reason)


def _under_repair(suspect: Suspect) -> Answer:
    """Keeps a proved loss open while its repair is unfinished, because the inbox has no effect yet."""
    known, repair = suspect.known, suspect.repair
    if known is None or known.loss_verdict is None or repair is None or repair.state in FINISHED_REPAIRS:
        return None
    if suspect.plan.reads_halves and not suspect.group.has_inbox:
        return None  # no inbox shows whether it was delivered since, but a copy does
    reason = UNDER_REPAIR(state=str(repair.state), rung=str(repair.rung))
    return Judgement(verdict=known.loss_verdict, reason=reason)


def _wanted(suspect: Suspect) -> Answer:
    """Compares the outbox row's tag with the group's filter: a message that the group does not take needs no look-up at
    a broker."""
    if suspect.has_outbox and suspect.outbox is None:
        return Question.OUTBOX
    if (contradicted := _contradicted(suspect)) is not None:
        return contradicted
    return None if suspect.commit is None else _filtered(suspect, suspect.commit.tag)


def _filtered(suspect: Suspect, tag: str | None) -> Judgement | None:
    if suspect.plan.accepts(tag):
        return None
    return Judgement(verdict=Verdict.FILTERED, reason=NOT_TAKEN(tag=repr(tag)))


def _unheard_of(suspect: Suspect) -> Answer:
    """Settles a key without commit and known copy. No broker is asked, so forged keys cost the brokers nothing."""
    is_unseen = suspect.known is None or (suspect.known.loss_verdict is None and suspect.known.verdict in _UNSEEN)
    is_answered = suspect.outbox is not None and not suspect.outbox.is_unknown
    return _commit(suspect) if is_unseen and is_answered and suspect.commit is None else None


def _commit(suspect: Suspect) -> Answer:
    """Asks for the evidence of the commit; without that evidence a copy has nothing to be compared with."""
    if not suspect.has_outbox:
        return None
    if suspect.outbox is None:
        return _unknown(OUTBOX_NOT_ASKED(), Undecided.WITNESS)
    if suspect.outbox.is_unknown:
        return _unknown(outbox_unknown(suspect.outbox), suspect.outbox.undecided_by)
    if suspect.commit is not None:
        return None
    return missed_commit(suspect) or rejected(suspect)


def _gate(suspect: Suspect) -> Answer:
    """Stage 2: leaves an undecided key undecided while the gate is shut."""
    if suspect.gate_open:
        return None
    known = suspect.known
    verdict = known.verdict if known is not None and known.verdict in WAITING else Verdict.UNKNOWN
    return Judgement(verdict=verdict, reason=GATE_SHUT())


def _committed_copy(suspect: Suspect) -> Answer:
    """Stage 3: looks for a copy of this message under the real topic. A message with a copy is never lost, so the only
    question is how far the group has read."""
    copies = suspect.own_copies
    if copies is None:
        return Question.COMMITTED_COPIES
    if copies.is_unknown:
        return _unknown(copies_unknown(copies), Undecided.WITNESS)
    if copies.is_absent:
        return None
    filtered = _filtered(suspect, copies.records[-1].tag)
    if filtered is not None:
        return filtered
    match reach(suspect.group.positions, copies.records):
        case Verdict.LAGGING:
            return Judgement(verdict=Verdict.LAGGING, reason=LAGGING())
        case Verdict.UNKNOWN:
            return _offset_in_doubt(suspect, copies.records)
    return _past_copies(suspect, copies.records)


def _offset_in_doubt(suspect: Suspect, copies: Sequence[StoredMessage]) -> Judgement | Question:
    """Judges a group whose offset proves nothing about the copies. A dead letter shows that the group gave up."""
    verdict = suspect.position_of(suspect.plan)
    if isinstance(verdict, Question):
        return verdict
    if verdict is Verdict.DEAD_LETTERED:
        return Judgement(verdict=verdict, reason=DEAD_LETTERED())
    return _unknown(why_unknown(suspect.group.positions, copies), Undecided.WITNESS)


def _past_copies(suspect: Suspect, copies: Sequence[StoredMessage]) -> Judgement | Question:
    """Judges a key whose copies the group has passed, while no effect is known."""
    verdict = suspect.position_of(suspect.plan)
    if isinstance(verdict, Question):
        return verdict
    if verdict is Verdict.UNKNOWN:
        return _unknown(_why_in_doubt(suspect), _by_in_doubt(suspect))
    if verdict is Verdict.BEFORE_SINCE:
        return _before_since(suspect)
    if verdict is Verdict.DELIVERED_NOT_APPLIED:
        if not (suspect.group.shows_effects or suspect.plan.reads_halves):
            return _unknown(WITHOUT_INBOX(), Undecided.SET_UP)
        if suspect.copies_again is None:
            return Question.COPIES_AGAIN
        if not _are_all_there(copies, suspect.copies_again.records):
            return _unknown(COPY_GONE())
        if not suspect.group.shows_effects:
            return Judgement(verdict=Verdict.DELIVERED, reason=DELIVERED())
    return Judgement(verdict=verdict, reason=PASSED_BY_QUERY() if suspect.group.asks_effects else PASSED())


def _why_in_doubt(suspect: Suspect) -> Fact:
    match suspect.group.consume_mode:
        case ConsumeMode.POP:
            return POPPED() if suspect.group.shows_effects else POPPED_WITHOUT_INBOX()
        case ConsumeMode.UNKNOWN:
            return MODE_UNKNOWN()
        case _:
            return GROUP_UNKNOWN()


def _by_in_doubt(suspect: Suspect) -> Undecided:
    """Returns what prevents a decision."""
    if suspect.group.consume_mode in (ConsumeMode.POP, ConsumeMode.UNKNOWN):
        return Undecided.HANDED_OUT if suspect.group.shows_effects else Undecided.SET_UP
    return Undecided.WITNESS


def _before_since(suspect: Suspect) -> Judgement:
    """Returns the verdict on a message that was given to groups before this group counts. The message is neither sent
    for this group alone nor called unapplied."""
    reason = GIVEN_BEFORE(given_ms=suspect.given_ms or 0, since_ms=suspect.plan.since_ms or 0)
    return Judgement(verdict=Verdict.BEFORE_SINCE, reason=reason)


def _are_all_there(copies: Sequence[StoredMessage], again: Sequence[StoredMessage]) -> bool:
    """Returns True if no copy was deleted meanwhile. Brokers delete the oldest copies first, and a copy for the next
    try is younger than the copy that it repeats."""
    return {(c.broker, c.commit_log_offset) for c in copies} <= {(c.broker, c.commit_log_offset) for c in again}


def _trusted(suspect: Suspect) -> Answer:
    """Judges a key without a copy of its message. Without an outbox, only a row of the business or the announcement can
    prove the commit."""
    evidence = suspect.topic.evidence
    if evidence.has_outbox:
        return None
    if evidence.asks_business:
        return _row_of_business(suspect)
    if not evidence.trusts_announcements:
        return _unknown(UNPROVED(), Undecided.SET_UP)
    doubt = doubt_of_announcement(suspect)
    return _unknown(doubt, Undecided.SET_UP) if isinstance(doubt, Fact) else doubt


def _row_of_business(suspect: Suspect) -> Answer:
    """Looks for the row of the business that the half's key finds. Only such a row proves the commit; an announcement
    or a half does not. A missing row, or a row that says "rolled back", is no proof against the commit, because rows
    change."""
    for own, question, silent in (
        (suspect.own_halves, Question.HALF_COPIES, half_unknown),
        (suspect.own_parked, Question.PARKED_COPIES, _parked_silent),
    ):
        if own is None:
            return question
        if own.is_unknown:
            return _unknown(silent(own), Undecided.WITNESS)
        if own.is_found:
            break
    else:
        return _without_half(suspect)
    if suspect.business is None:
        return Question.COMMIT_QUERY
    if is_committed(suspect.business):
        doubt = doubt_of_siblings(suspect)
        return _doubted(doubt) if isinstance(doubt, SiblingDoubt) else doubt
    return _not_committed(suspect.business, suspect.plan)


def _parked_silent(parked: Lookup[StoredMessage]) -> Fact:
    return PARKED_UNKNOWN(why=parked.reason)


def _without_half(suspect: Suspect) -> Judgement:
    """Judges a key whose half is gone. Only a half has the key of the business, so nothing more can become known. If
    the key was UNKNOWN until then, or is older than what brokers surely keep, a person has to look. The exception is a
    key of which another message was delivered, because the row then tells of that message alone."""
    reason, known = NO_KEY_COPY(), suspect.known
    had_half = known is not None and COMMIT_QUERY in known.evidence
    is_young = suspect.now_ms is None or suspect.is_kept_since(suspect.first_seen_ms, now_ms=suspect.now_ms)
    if (delivered := delivered_sibling(suspect)) is not None:
        return _doubted(delivered) if is_young else Judgement(verdict=Verdict.REJECTED, reason=delivered.reason)
    if known is None or (is_young and not had_half):
        return _unknown(reason, Undecided.WITNESS)
    return _given_up(known.verdict, reason_in(known.evidence) if had_half else reason)


def _doubted(doubt: SiblingDoubt) -> Judgement:
    return _unknown(doubt.reason, doubt.by, wait_seconds=doubt.wait_seconds)


def _given_up(verdict: Verdict, why: Fact) -> Judgement:
    return Judgement(verdict=Verdict.QUARANTINED, reason=GIVEN_UP(verdict=str(verdict), why=why))


def _not_committed(business: BusinessAnswer, plan: SubscriptionPlan) -> Judgement:
    reason = why_not_committed(business)
    if business.why is not None:
        is_of_time = business.why.code is TRANSACTION_MAY_RUN
        return _unknown(reason, None if is_of_time else Undecided.WITNESS)
    if plan.reads_halves:
        # A half is sent before its transaction ends, and most halves without a row were rolled back. So the row is
        # asked for again.
        return Judgement(verdict=Verdict.REJECTED, reason=reason)
    return _unknown(reason, Undecided.WITNESS)


def _effect_without_copy(suspect: Suspect) -> Answer:
    """Looks for an effect without a copy before anything is called lost."""
    return Question.EFFECT_QUERY if may_own_effect(suspect) else None


def _young(suspect: Suspect) -> Answer:
    """Lets the grace period count from the commit, too, because a stranger may have announced the key before its
    commit.

    The row says when it was written, and when its own service announced it, which is after the commit. If the row is
    not announced yet, the commit may have happened just now. A repeated announcement must not put the key off for ever.
    The times of the row are of the database's clock. A time that lies ahead by more than the skew margin proves
    nothing.
    """
    row = suspect.row
    if row is None or suspect.now_ms is None:
        return None
    grace_ms = suspect.plan.grace_period_seconds * 1000
    written_ms = row.message.created_at_ms
    own_ms = written_ms + max(grace_ms, OWN_ANNOUNCEMENT_SECONDS_MAX * 1000)
    announced_ms = min(suspect.now_ms if row.announced_at_ms is None else row.announced_at_ms, own_ms)
    ahead_ms = suspect.now_ms + suspect.skew_margin_seconds * 1000
    counted = [at_ms for at_ms in (written_ms, announced_ms) if at_ms <= ahead_ms]
    left_ms = max(counted, default=0) + grace_ms - suspect.now_ms
    if left_ms <= 0:
        return None
    return _unknown(YOUNG(), wait_seconds=left_ms / 1000)


def _half(suspect: Suspect) -> Answer:
    """Stage 4: looks for the half message."""
    own = suspect.own_halves
    if own is None:
        return Question.HALF_COPIES
    if own.is_unknown:
        return _unknown(half_unknown(own), Undecided.WITNESS)
    if own.is_absent:
        return None
    if (filtered := _filtered(suspect, own.records[-1].tag)) is not None:
        return filtered
    if suspect.check_back is None:
        return Question.CHECK_BACK
    left = suspect.check_back.wait_seconds - suspect.check_back.age_seconds
    if left > 0:
        return _unknown(CHECK_BACK(), wait_seconds=left)
    if suspect.check_back.looks_rolled_back(own.records):
        if suspect.check_back.is_past_check is False:
            return Judgement(verdict=Verdict.LOST_CONFIRM, reason=NOT_CHECKED())
        return _rolled_back_or_parked(suspect)
    return Judgement(verdict=Verdict.LOST_CONFIRM, reason=HALF_FOUND())


def _rolled_back_or_parked(suspect: Suspect) -> Judgement | Question:
    own = suspect.own_parked
    if own is None:
        return Question.PARKED_COPIES
    if own.is_unknown:
        return _unknown(_parked_silent(own), Undecided.WITNESS)
    if own.is_found:
        return Judgement(verdict=Verdict.LOST_CONFIRM, reason=PARKED_AND_HALF())
    return Judgement(verdict=Verdict.ROLLED_BACK_WRONGLY, reason=ROLLED_BACK_WRONGLY())


def _parked(suspect: Suspect) -> Answer:
    """Stage 5: looks for a parked copy. The broker has given up asking, and the half copies are gone."""
    own = suspect.own_parked
    if own is None:
        return Question.PARKED_COPIES
    if own.is_unknown:
        return _unknown(_parked_silent(own), Undecided.WITNESS)
    if own.is_absent:
        return None
    return _filtered(suspect, own.records[-1].tag) or Judgement(verdict=Verdict.PARKED, reason=PARKED())


def _everything_absent(suspect: Suspect) -> Judgement:
    """Stage 6: no broker has this message. If brokers have another message under its key, only a kept body can be
    sent."""
    asked = (("committed", suspect.copies), ("half", suspect.halves), ("parked", suspect.parked))
    others = [(kind, copy) for kind, lookup in asked for copy in (lookup.records if lookup is not None else ())]
    found = [OTHER_COPIES[kind](why=why) for kind, copy in others if (why := _other(suspect, kind, copy)) is not None]
    if suspect.lies_before(suspect.plan) and not suspect.was_lost:
        return _before_since(suspect)
    if not found:
        return Judgement(verdict=Verdict.EXPIRED, reason=NO_COPY())
    doubted = suspicion(suspect.message, [copy for _, copy in others])
    if doubted is not None or kept_message(suspect.commit) is None:
        return Judgement(verdict=Verdict.COLLISION, reason=doubted or found[-1])
    return Judgement(verdict=Verdict.EXPIRED, reason=NO_OWN_COPY(other=found[-1]))


def _other(suspect: Suspect, kind: str, copy: StoredMessage) -> Fact | None:
    if kind == "committed":
        return difference(copy, suspect.message)
    return disagreement(copy, topic=suspect.topic, row=suspect.message)


def _unless_deleted(answer: Judgement | Question, suspect: Suspect) -> Judgement | Question:
    """Doubts a loss whose half may have outlived a delivered copy. A repair checks this itself."""
    at_ms = suspect.now_ms if suspect.repair is None else None
    if at_ms is None or not isinstance(answer, Judgement) or answer.verdict not in _OF_HALVES:
        return answer
    doubt = doubt_of_half(suspect, now_ms=at_ms)
    return answer if doubt is None else _unknown(doubt, Undecided.CONTRADICTION)


def _unless_given_before(answer: Judgement | Question, suspect: Suspect) -> Judgement | Question:
    """Doubts a loss whose half was put back or parked: groups may have had a copy that is gone now."""
    is_seen_late = isinstance(answer, Judgement) and answer.verdict in _OF_HALVES and not suspect.was_lost
    return _before_since(suspect) if is_seen_late and suspect.lies_before(suspect.plan) else answer


def _unless_filtered(answer: Judgement | Question, suspect: Suspect) -> Judgement | Question:
    """Doubts a loss without an effect and without a first half copy, because then only tags show whether the group
    wanted the message.

    A group that filters by SQL92 passes what it filters without an effect. Once such a copy has been deleted by age,
    the message looks as if it never had a copy. A loss that was proved before stays a loss.
    """
    explained = _FILTERED_PERHAPS if suspect.shows_first_half else _FILTERED_PERHAPS | _OF_HALVES
    if suspect.was_lost:
        explained -= LOSSES
    if not isinstance(answer, Judgement) or answer.verdict not in explained:
        return answer
    match suspect.group.filter_kind:
        case None:
            return Question.FILTER_KIND
        case FilterKind.SQL92:
            return _unknown(BY_SQL92(), Undecided.SET_UP, wait_seconds=SQL92_WAIT_SECONDS)
        case FilterKind.UNKNOWN:
            return _unknown(FILTER_UNKNOWN(), Undecided.WITNESS)
        case _:
            return answer


def _damaged(answer: Judgement | Question, suspect: Suspect) -> Judgement | Question:
    """Gives a key to a person if only an unreadable value keeps it UNKNOWN, because that would last for ever."""
    is_unknown = isinstance(answer, Judgement) and answer.verdict is Verdict.UNKNOWN
    damage = suspect.damage
    if not is_unknown or damage is None or suspect.damaged_looks < DAMAGED_LOOKS_MAX:
        return answer
    return Judgement(verdict=Verdict.QUARANTINED, reason=DAMAGED(looks=suspect.damaged_looks, damage=damage))


def _beyond_inbox(answer: Judgement | Question, suspect: Suspect) -> Judgement | Question:
    """Doubts a loss whose group may have deleted the row of the effect."""
    if not isinstance(answer, Judgement) or answer.verdict not in LOSSES or suspect.now_ms is None:
        return answer
    why = why_row_may_be_gone(suspect, now_ms=suspect.now_ms)
    return answer if why is None else _given_up(answer.verdict, why)


def _after_repair(answer: Judgement | Question, suspect: Suspect) -> Judgement | Question:
    """Leaves a loss to a person if its repair has ended without an effect, because no loss is repaired twice.

    A repair that was closed unsent is opened again, because a reconciler with other settings may have missed the loss.
    """
    if suspect.repair is None or suspect.repair.closed_unsent:
        return answer
    if isinstance(answer, Judgement) and answer.verdict in LOSSES and suspect.repair.state in FINISHED_REPAIRS:
        of = {"verdict": str(answer.verdict), "state": str(suspect.repair.state)}
        reason = REPAIR_OVER(**of, answer=suspect.repair.answer) if suspect.repair.answer else REPAIR_OVER_SILENT(**of)
        return Judgement(verdict=Verdict.QUARANTINED, reason=reason)
    return answer


def _unforgotten(answer: Judgement | Question, suspect: Suspect) -> Judgement | Question:
    """Keeps the delivery of another half that an earlier look saw, even if this look got no answer, because the copy of
    that half may have been deleted since."""
    if isinstance(answer, Question) or answer.undecided_by is not Undecided.WITNESS:
        return answer
    delivered = delivered_sibling(suspect)
    return answer if delivered is None else _doubted(delivered)
