"""Handles several halves with one business key and tag, which are tries of one order. A row of the business says that
the key was committed.

Nobody can tell to which of these halves the row belongs. If one of these halves was delivered, nothing is known to be
missing. If none of the halves was delivered, the consumers miss a message, and a person has to hear of that. Brokers
get the time to ask about these halves first.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.contract.facts import Fact
from reconciler.contract.reasons import (
    NO_SIBLING_DELIVERED,
    SIBLING_DELIVERED,
    SIBLING_MAY_BE_GONE,
    SIBLINGS,
    SIBLINGS_UNREAD,
)
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.verdicts import Undecided
from reconciler.policy.inquiry.business import SIBLINGS_NAMED_MAX, sibling_doubt
from reconciler.policy.inquiry.case_file import Question
from reconciler.policy.inquiry.delivery import copies_unknown
from reconciler.policy.judging.suspect import Suspect

#: Shortest wait before the next look at a half if another half of its key was delivered, because only a copy of this
#: half changes anything.
SIBLING_DELIVERED_WAIT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingDoubt:
    """Why a committed row proves no loss of this half."""

    reason: Fact
    #: The cause that prevents a decision. None: only time does.
    by: Undecided | None
    wait_seconds: float | None = None


def doubt_of_siblings(suspect: Suspect) -> SiblingDoubt | Question | None:
    """Returns why the row may belong to another half, or the next question. None: no other half exists."""
    if (seen := delivered_sibling(suspect)) is not None:
        return seen  # even if the other halves were forgotten since, or cannot be read now
    # A producer's announcement names the producer's own half. If halves are the announcements, another try's half may
    # still be unread.
    siblings = suspect.siblings
    doubt = sibling_doubt(siblings, may_be_unread=not suspect.plan.reads_halves)
    if doubt is None:
        return None
    if siblings is None or doubt.code is not SIBLINGS:
        return SiblingDoubt(reason=doubt, by=Undecided.WITNESS if doubt.code is SIBLINGS_UNREAD else Undecided.SET_UP)
    if (young_seconds := _age_left(suspect, siblings.newest_ms, suspect.plan.grace_period_seconds)) > 0:
        return SiblingDoubt(reason=doubt, by=None, wait_seconds=young_seconds)  # brokers are not asked about it yet
    followed = suspect.followed_siblings
    if followed and suspect.sibling_copies is None:
        return Question.SIBLING_COPIES
    copies = suspect.sibling_copies
    if copies is not None and copies.is_found:
        return _delivered(suspect, SIBLING_DELIVERED(unique_key=copies.records[0].unique_key))
    if copies is not None and copies.is_unknown:
        return SiblingDoubt(reason=copies_unknown(copies), by=Undecided.WITNESS)
    if len(followed) < len(siblings.unique_keys):
        return SiblingDoubt(reason=doubt, by=Undecided.SET_UP)
    left_seconds = _seconds_left(suspect, siblings.newest_ms)
    if isinstance(left_seconds, Question):
        return left_seconds
    if left_seconds > 0:
        return SiblingDoubt(reason=doubt, by=None, wait_seconds=left_seconds)
    code = SIBLING_MAY_BE_GONE if _may_be_gone(suspect, siblings.oldest_ms) else NO_SIBLING_DELIVERED
    reason = code(number=len(followed), unique_keys=followed[:SIBLINGS_NAMED_MAX])
    return SiblingDoubt(reason=reason, by=Undecided.CONTRADICTION)


def _may_be_gone(suspect: Suspect, oldest_ms: int) -> bool:
    """Returns True if a copy of the oldest half may have been deleted by age. Returns False if an earlier look, early
    enough to see such a copy, found none. A person has to hear of both cases, because the consumers may miss the
    order."""
    before = _reason_before(suspect)
    if before is not None and before.code is NO_SIBLING_DELIVERED:
        return False
    return suspect.now_ms is not None and not suspect.is_kept_since(oldest_ms, now_ms=suspect.now_ms)


def delivered_sibling(suspect: Suspect) -> SiblingDoubt | None:
    """Returns the doubt of an earlier look that saw another half of the key delivered. The copy of that half may have
    been deleted by age since."""
    before = _reason_before(suspect)
    return _delivered(suspect, before) if before is not None and before.code is SIBLING_DELIVERED else None


def _reason_before(suspect: Suspect) -> Fact | None:
    return reason_in(suspect.known.evidence) if suspect.known is not None else None


def _delivered(suspect: Suspect, reason: Fact) -> SiblingDoubt:
    age_seconds = 0.0 if suspect.now_ms is None else (suspect.now_ms - suspect.first_seen_ms) / 1000
    wait_seconds = max(SIBLING_DELIVERED_WAIT_SECONDS, age_seconds / 4)
    return SiblingDoubt(reason=reason, by=Undecided.SET_UP, wait_seconds=wait_seconds)


def _age_left(suspect: Suspect, newest_ms: int, wanted_seconds: float) -> float:
    """Returns the seconds until the youngest other half has this age. A person who asks does not wait."""
    return 0.0 if suspect.now_ms is None else wanted_seconds - (suspect.now_ms - newest_ms) / 1000


def _seconds_left(suspect: Suspect, newest_ms: int) -> float | Question:
    """Returns how long brokers may still ask about this half, or about the youngest other half, and so deliver it."""
    check_back = suspect.check_back
    if check_back is None:
        is_asked_about = suspect.own_halves is not None and suspect.own_halves.is_found
        return Question.CHECK_BACK if is_asked_about else 0.0
    own_seconds = check_back.wait_seconds - check_back.age_seconds
    return max(own_seconds, _age_left(suspect, newest_ms, check_back.wait_seconds))
