"""Last in a round: closed rows whose verdict rests on an absence are checked once more.

An absence may come from a replica that was behind, or a transaction that took its time. So a key is asked for again
that was REJECTED for want of an outbox row, or by the tombstone of one database while another one had no row; and a key
that waits for a person because its effect is missing, or half. It takes one statement to the outbox and one to the
inbox; no broker is asked. A key that is there is OPEN again, and the next round judges it in full.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.clock import Backoff
from reconciler.contract.subscription import Shard
from reconciler.contract.verdicts import Verdict
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.judging.judgement import ASK_AGAIN_SECONDS_MIN
from reconciler.policy.judging.suspect import Suspect
from reconciler.policy.judging.verifier import Verifier
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports import Candidate, Candidates

#: Longest pause between two questions.
ASK_AGAIN_SECONDS_MAX = 6 * 3600.0


def review_absences(
    topic: TopicPlan, plan: SubscriptionPlan, candidates: Candidates, verifier: Verifier, *, retention_seconds: float
) -> list[str]:
    """One round's questions about closed rows. Returns what people should know, a line at most. Raises DatabaseAway.

    Two processes may ask about the same rows: that costs a statement and changes nothing.
    """
    rows = candidates.to_ask_again(plan.subscription, limit=PAGE_KEYS)
    answered = [(row, suspect) for row, suspect in zip(rows, verifier.ask_again(topic, plan, rows), strict=True)]
    found = [row for row, suspect in answered if _is_settled_otherwise(row, suspect)]
    for number in sorted({topic.shard_of(row.unique_key) for row in found}):
        shard = Shard(subscription=plan.subscription, number=number)
        candidates.take_back(shard, [r.unique_key for r in found if topic.shard_of(r.unique_key) == number])
    pauses: dict[float | None, list[str]] = {}
    for row, suspect in answered:
        if not _is_settled_otherwise(row, suspect):
            pause = pause_seconds(row, suspect, retention_seconds=retention_seconds)
            pauses.setdefault(pause, []).append(row.unique_key)
    for pause, keys in pauses.items():
        candidates.ask_later(plan.subscription, keys, seconds=pause)
    return [_note_of(found)] if found else []


def _is_settled_otherwise(row: Candidate, suspect: Suspect) -> bool:
    """A committed outbox row, or an effect; for an effect that was half, that its row is accepted or gone."""
    if row.verdict is Verdict.INCOMPLETE:
        return suspect.inbox is not None and not suspect.inbox.is_unknown
    if suspect.outbox is not None:
        return any(row.is_committed for row in suspect.outbox.records)
    return suspect.inbox is not None and suspect.inbox.is_found


def pause_seconds(row: Candidate, suspect: Suspect, *, retention_seconds: float) -> float | None:
    """Until the next question: as long as the verdict had stood when this one was due, in doublings; None: no more.

    A tombstone is final where every database has one. Once the brokers' retention has passed since the verdict, the row
    stays as it is.
    """
    if row.ask_again_at_ms is None:
        return ASK_AGAIN_SECONDS_MIN  # the stored time is unreadable: it is written again
    stood_seconds = (row.ask_again_at_ms - row.updated_at_ms) / 1000
    is_final = suspect.outbox is not None and suspect.outbox.is_found and not suspect.outbox.has_absence
    if is_final or stood_seconds >= retention_seconds:
        return None
    asked = suspect.outbox or suspect.inbox
    if asked is None or asked.is_unknown:
        return ASK_AGAIN_SECONDS_MIN
    doublings = max(0, int(stood_seconds // ASK_AGAIN_SECONDS_MIN).bit_length() - 1)
    return Backoff(ASK_AGAIN_SECONDS_MIN, ASK_AGAIN_SECONDS_MAX).pause_seconds(doublings)


def _note_of(taken_back: Sequence[Candidate]) -> str:
    """One line for people: a row that was called absent is there, so a witness may be a replica that is behind; or
    somebody has ended what was incomplete."""
    first = taken_back[0]
    return (
        f"{len(taken_back)} closed keys are looked at again: what was missing is there; the first, {first.unique_key}, "
        f"was {first.verdict}: {str(first.evidence.get('reason'))[:200]}"
    )
