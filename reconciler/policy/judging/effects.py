"""What is concluded from the answer about an effect, and when an effect query is asked. Pure.

An effect query is asked late, because it needs a copy of the message. It is asked once the group has passed a copy, or
once a row of the business proves the commit of a message without a copy.
"""

from __future__ import annotations

from reconciler.contract.facts import Fact
from reconciler.contract.reasons import COPY_MAY_BE_GONE_BESIDE_OTHER_TAGS, KEPT_TOO_SHORT, SEEN_LATE
from reconciler.policy.inquiry.business import SIBLINGS_NAMED_MAX, other_tags_doubt
from reconciler.policy.inquiry.delivery import written_ms
from reconciler.policy.judging.suspect import Suspect


def may_own_effect(suspect: Suspect) -> bool:
    """Returns True if the effect query is still to be asked about a message without a copy. If messages with other tags
    have the same key, the row may be theirs, and proves nothing."""
    asks = suspect.group.asks_effects and suspect.inbox is None
    return asks and other_tags_doubt(suspect.siblings) is None


def doubt_of_half(suspect: Suspect, *, now_ms: int) -> Fact | None:
    """Returns why a half that was put back or parked proves no loss: it outlives a copy, and a deleted copy may have
    had its effect. None: such a copy never existed, or the group shows that it had no effect."""
    seen_ms = suspect.first_seen_ms or now_ms
    is_unasked = suspect.group.asks_effects and suspect.inbox is None
    if not is_unasked or not suspect.may_lack_copies(seen_ms, now_ms=now_ms):
        return suspect.given_perhaps(seen_ms, now_ms=now_ms)
    names = suspect.siblings.of_other_tags if suspect.siblings is not None else ()
    return COPY_MAY_BE_GONE_BESIDE_OTHER_TAGS(number=len(names), unique_keys=names[:SIBLINGS_NAMED_MAX])


def why_row_may_be_gone(suspect: Suspect, *, now_ms: int) -> Fact | None:
    """Returns why a missing row of the group proves no missing effect: the message is older than the rows that the
    group keeps. If the group shows no effects, the message is older than what brokers surely keep. None: the missing
    row counts.

    A loss under repair is left to the repair, which looks for every group's effect before each send.
    """
    at_ms = written_ms(suspect.message, suspect.halves, suspect.parked, suspect.copies)
    if suspect.repair is not None or at_ms is None:
        return None
    if not suspect.group.shows_effects:
        return suspect.given_perhaps(suspect.first_seen_ms or now_ms, now_ms=now_ms)
    if not suspect.plan.inbox_reaches(at_ms, now_ms=now_ms):
        return KEPT_TOO_SHORT()
    latest_ms = _no_later_ms(suspect, at_ms)
    is_named = suspect.shows_first_half or suspect.tells_former_names(latest_ms, now_ms=now_ms)
    return SEEN_LATE() if suspect.group.has_inbox and not is_named else None


def _no_later_ms(suspect: Suspect, written_at_ms: int) -> int:
    """Returns the latest time at which the message can have been written. A database's clock that was ahead must not
    make the message younger."""
    return min(written_at_ms, suspect.first_seen_ms) if suspect.first_seen_ms else written_at_ms
