"""The last part of a round: checks closed rows again whose verdict rests on an absence.

A replica that was behind, or a long transaction, may have caused the absence. Two kinds of keys are asked for again.
The first are REJECTED keys for which the outbox had no row, or for which one database had a tombstone and another
database had no row. The second are keys that wait for a person because their effect is missing or incomplete. One
statement to the outbox and one to the inbox ask for all these keys. If the row exists now, the key becomes OPEN again,
and the next round judges it in full.

The absence may also come from the wrong outbox: a former primary, a clone, another schema, another environment. The
half shows that. Plug-ins write the name of the outbox into it, and a half without a name is open or was committed. So
each round asks brokers for the halves of a few REJECTED keys. If a half denies the absence, the key becomes OPEN and
UNKNOWN until the row is found or a person acts. Until a half was looked for, its key is *unreviewed*, and holds the
accounted-until time. In a flood unreviewed keys stay due, and each round looks for the halves of some.

A person dismisses a key after making the missing effect by hand. An open half, a retry or a copy may still deliver the
message, which would be a second effect. So the inbox is also asked about dismissed keys. A dismissed key that has taken
effect waits for a person again. A dismissed key never becomes OPEN, so no message is sent for such a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from reconciler.clock import Backoff
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.reasons import APPLIED_AT, TOOK_EFFECT_DISMISSED
from reconciler.contract.row_rules import ASK_AGAIN_MS_MAX, FIRST_QUESTION_MS_MAX, is_unreviewed
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.policy.commit_query import is_committed
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.inquiry.delivery import late_effects_ms
from reconciler.policy.inquiry.witnesses import BrokerSnapshot
from reconciler.policy.judging.judge import Judge, JudgedKey
from reconciler.policy.judging.judgement import incomplete_effect
from reconciler.policy.judging.selection import SelectionRules
from reconciler.policy.judging.suspect import Suspect, evidence_of, taken_back
from reconciler.policy.judging.waits import ASK_AGAIN_SECONDS_MIN
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import DISMISSED_AT_MS, Candidate, Candidates, VerdictEntry

NOT_ABSENT = Code("round.not-absent", number=Field.NUMBER, first=Field.NAME, verdict=Field.NAME, reason=Field.FACT)
NOT_REJECTED = Code("round.not-rejected", number=Field.NUMBER, first=Field.NAME, reason=Field.FACT)
DISMISSED_TOOK_EFFECT = Code("round.dismissed-took-effect", number=Field.NUMBER, first=Field.NAME, reason=Field.FACT)

#: The longest pause between two questions about a key.
ASK_AGAIN_SECONDS_MAX = ASK_AGAIN_MS_MAX / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsenceReview:
    """The result of one round's questions about closed rows."""

    #: At most three facts for people.
    told: Sequence[Fact]
    #: True if unreviewed keys are due that had no place in this round.
    has_more: bool


def review_absences(
    topic: TopicPlan,
    plan: SubscriptionPlan,
    candidates: Candidates,
    judge: Judge,
    *,
    rules: SelectionRules,
    snapshot: BrokerSnapshot,
) -> AbsenceReview:
    """Asks one round's questions about closed rows. Raises DatabaseAway. If two processes ask about the same rows, that
    costs a statement and changes nothing.
    """
    now_ms = snapshot.now_ms
    rows = candidates.to_ask_again(plan.subscription, limit=PAGE_KEYS)
    asked = list(zip(rows, judge.ask_again(topic, plan, rows), strict=True))
    found_late = (_late_effect(row, suspect, judge.english, now_ms=now_ms) for row, suspect in asked)
    late = [seen for seen in found_late if seen is not None]
    woken = candidates.wake_dismissed(plan.subscription, late) if late else ()
    answered = [(row, suspect) for row, suspect in asked if row.unique_key not in woken]
    found = [row for row, suspect in answered if _is_settled_otherwise(row, suspect)]
    absent = [(row, suspect) for row, suspect in answered if not _is_settled_otherwise(row, suspect)]
    looked = judge.review_by_halves(_some_rejected(absent, rules.halves_max), snapshot)
    missed = [one for one in looked if one.entry.undecided_by is Undecided.CONTRADICTION]
    _take_back(topic, plan, candidates, [row.unique_key for row in found], missed)
    opened = {one.suspect.unique_key for one in missed}
    said = {one.suspect.unique_key: one.entry.verdict for one in looked}
    pauses: dict[tuple[float | None, bool], list[str]] = {}
    for row, suspect in absent:
        if row.unique_key in opened:
            continue
        if stays := _is_unreviewed(row, suspect) and said.get(row.unique_key) is not Verdict.REJECTED:
            had_place = row.unique_key in said or not _is_answered(suspect)
            pause: float | None = ASK_AGAIN_SECONDS_MIN if had_place else 0.0
        else:
            pause = pause_seconds(row, suspect, retention_seconds=rules.retention_seconds, now_ms=now_ms)
        pauses.setdefault((pause, stays), []).append(row.unique_key)
    for (pause, stays), keys in pauses.items():
        candidates.ask_later(plan.subscription, keys, seconds=pause, stays_unreviewed=stays)
    told = [seen for seen in late if seen.unique_key in woken]
    return AbsenceReview(
        told=[
            *([_note_of(found)] if found else []),
            *([_note_of_missed(missed)] if missed else []),
            *([_note_of_late(told)] if told else []),
        ],
        has_more=(0.0, True) in pauses,
    )


def _is_unreviewed(row: Candidate, suspect: Suspect) -> bool:
    """Returns True for a REJECTED key whose half nobody has looked for since its verdict. Where halves announce, an
    announcement does not say that there was a commit."""
    is_doubted = (
        suspect.has_outbox and not suspect.plan.reads_halves and (not _is_answered(suspect) or _lacks_row(suspect))
    )
    is_new = is_unreviewed(row.ask_again_at_ms, updated_at_ms=row.updated_at_ms)
    return row.verdict is Verdict.REJECTED and is_doubted and is_new


def _late_effect(
    row: Candidate, suspect: Suspect, english: Callable[[Fact], str], *, now_ms: int | None
) -> VerdictEntry | None:
    """Returns the entry for a dismissed key whose inbox has an effect, complete or incomplete, that the dismissing
    person did not know. None: the inbox has no such effect, or does not answer."""
    inbox = suspect.inbox
    if not row.is_dismissed or inbox is None:
        return None
    late_ms = late_effects_ms(row, inbox)
    if not late_ms:
        return None
    by, because = (str(row.evidence.get(name, "not noted")) for name in ("dismissed_by", "dismissed_because"))
    halfway = inbox.incomplete
    reason = TOOK_EFFECT_DISMISSED(
        verdict=str(row.verdict),
        by=by,
        because=because,
        applied=APPLIED_AT(at_ms=min(late_ms)) if halfway is None else incomplete_effect(halfway),
    )
    before = taken_back(replace(suspect, now_ms=now_ms), english, Verdict.COLLISION)
    seen = evidence_of(suspect, english, reason=reason) | before
    return VerdictEntry(
        unique_key=row.unique_key,
        verdict=Verdict.COLLISION,
        evidence=dict(row.evidence) | seen | {DISMISSED_AT_MS: row.updated_at_ms},
        first_seen_ms=row.first_seen_ms,
        state=CandidateState.QUARANTINED,
        wait_seconds=0.0,
    )


def _note_of_late(told: Sequence[VerdictEntry]) -> Fact:
    first = told[0]
    return DISMISSED_TOOK_EFFECT(number=len(told), first=first.unique_key, reason=reason_in(first.evidence))


def _some_rejected(absent: Iterable[tuple[Candidate, Suspect]], halves_max: int) -> list[Suspect]:
    """Returns some rejected keys, unreviewed ones first. Of the others, returns other ones in each round, because they
    get a second look only to find what an index showed late."""
    rejected = [
        (not _is_unreviewed(row, suspect), crc32(f"{row.unique_key} {row.ask_again_at_ms}".encode()), suspect)
        for row, suspect in absent
        if row.verdict is Verdict.REJECTED and _lacks_row(suspect)
    ]
    return [suspect for *_, suspect in sorted(rejected, key=lambda one: one[:2])[:halves_max]]


def _lacks_row(suspect: Suspect) -> bool:
    """Returns True if the verdict relied on an outbox that had no row."""
    return suspect.outbox is not None and (suspect.outbox.is_absent or suspect.outbox.has_absence)


def _take_back(
    topic: TopicPlan,
    plan: SubscriptionPlan,
    candidates: Candidates,
    found: Sequence[str],
    missed: Sequence[JudgedKey],
) -> None:
    """Opens the rows again. If the half of a row was looked at, records the new evidence, because the next rounds need
    it."""
    keys = {*found, *(one.suspect.unique_key for one in missed)}
    for number in sorted({topic.shard_of(key) for key in keys}):
        shard = Shard(subscription=plan.subscription, number=number)
        candidates.take_back(shard, sorted(key for key in keys if topic.shard_of(key) == number))
        candidates.record(shard, [m.entry for m in missed if topic.shard_of(m.suspect.unique_key) == number])


def _note_of_missed(missed: Sequence[JudgedKey]) -> Fact:
    first = missed[0].entry
    return NOT_REJECTED(number=len(missed), first=first.unique_key, reason=reason_in(first.evidence))


def _is_settled_otherwise(row: Candidate, suspect: Suspect) -> bool:
    """Returns True if the missing evidence exists now: a committed outbox row, or an effect. An incomplete effect
    counts once a person has accepted or deleted its row."""
    if row.is_dismissed:
        return False
    if row.verdict is Verdict.INCOMPLETE:
        return suspect.inbox is not None and not suspect.inbox.is_unknown
    if suspect.outbox is not None:
        return any(row.commit is not None for row in suspect.outbox.records)
    if suspect.business is not None:
        return is_committed(suspect.business)
    return suspect.inbox is not None and suspect.inbox.is_found


def pause_seconds(
    row: Candidate, suspect: Suspect, *, retention_seconds: float, now_ms: int | None = None
) -> float | None:
    """Returns the pause before the next question: as long as the verdict had existed when this question was due, so
    that pauses double. None: no further question follows.

    A tombstone is final if every database has one. For a dismissed key, only the inbox counts. Once the brokers'
    retention has passed since the verdict, the row is not asked about again. `now_ms` is by Redis, so that a ledger's
    clock that was ahead at an earlier question does not lengthen the verdict's age.
    """
    if row.ask_again_at_ms is None:
        return ASK_AGAIN_SECONDS_MIN  # the stored time is unreadable, so it is written again
    until_ms = row.ask_again_at_ms if now_ms is None else min(row.ask_again_at_ms, now_ms)
    stood_seconds = max(0, until_ms - row.updated_at_ms) / 1000
    is_final = suspect.outbox is not None and suspect.outbox.is_found and not suspect.outbox.has_absence
    is_untold = row.is_dismissed and not suspect.group.has_inbox
    if is_final or is_untold or stood_seconds >= retention_seconds:
        return None
    if not _is_answered(suspect):
        return ASK_AGAIN_SECONDS_MIN
    doublings = max(0, int(stood_seconds // ASK_AGAIN_SECONDS_MIN).bit_length() - 1)
    pause = Backoff(ASK_AGAIN_SECONDS_MIN, ASK_AGAIN_SECONDS_MAX).pause_seconds(doublings)
    return max(pause, FIRST_QUESTION_MS_MAX / 1000 - stood_seconds)  # else the row would still count as unreviewed


def _is_answered(suspect: Suspect) -> bool:
    if suspect.business is not None:
        return suspect.business.why is None
    asked = suspect.outbox or suspect.inbox
    return asked is not None and not asked.is_unknown


def _note_of(taken_back: Sequence[Candidate]) -> Fact:
    """Returns a fact for people. A row that was called absent exists, so a witness may be a replica that is behind. Or
    a person has decided about an incomplete effect."""
    first = taken_back[0]
    return NOT_ABSENT(
        number=len(taken_back), first=first.unique_key, verdict=str(first.verdict), reason=reason_in(first.evidence)
    )
