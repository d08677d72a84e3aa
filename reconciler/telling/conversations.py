"""Decides what is reported to people, and when. Pure.

Most functions take a conversation and the present troubles, and return the conversation to write.

- A new trouble is reported after GATHER_SECONDS, and then at most once an interval. The message has the number of all
  troubles since the last message. The end of a trouble is reported at once, but only if the trouble was reported. A
  lasting trouble is reported again after the reminder's time.

- A conversation has at most one waiting message. Troubles that come meanwhile are added to that message. If an earlier
  try may have reached the receiver, a changed message gets a new id, and reports all troubles since the last message
  that was surely sent. An unchanged message keeps its id.
- A trouble that usually passes by itself is reported once it has lasted for the notifier's patience, or has come three
  times within an hour. Each process counts troubles in its memory, so a restart forgets the count.
- Troubles that happen at a time are counted by the ledger's times. The row of a trouble may become visible after the
  row of a later trouble. So each look counts all troubles of the last LATE_COMMIT_MS again, and subtracts the reported
  ones.
- A reported trouble disappears if it is dismissed, opened again, or deleted for its age. Then the number of reported
  troubles is lowered without a message. Otherwise new troubles would count as reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from reconciler.contract.facts import Fact
from reconciler.contract.tables import NoticeKind
from reconciler.telling.ports.notices import Conversation, Notice, PastTroubles, Place, StandingTrouble, WaitingNotice

#: Seconds between the first new trouble and its message. Troubles that come together are reported together.
GATHER_SECONDS = 5.0
#: A row that becomes visible this long after its time may be missed. Transactions of the ledger take only seconds.
LATE_COMMIT_MS = 600_000
#: Maximum number of rows that are counted for one message. A larger number means "more than these".
COUNTED_TROUBLES_MAX = 100_000
#: Maximum number of troubles that wait for a person and are counted. A larger number means "more than these".
STANDING_TROUBLES_MAX = 10_000
#: Kinds of troubles that happen at a time. Such troubles are reported even after their end. All other kinds last until
#: their end.
PAST_KINDS = frozenset({NoticeKind.LOSS_PROVED, NoticeKind.OUTAGE})
#: Kinds of troubles without an end. Each such trouble is reported once.
ENDLESS = frozenset({NoticeKind.AUDIT_VIOLATION})
#: Kinds of troubles that usually pass by themselves and then need no person.
PASSING_KINDS = frozenset({NoticeKind.LOSS_PROVED, NoticeKind.OUTAGE, NoticeKind.BROKER_AWAY, NoticeKind.DATABASE_AWAY})
#: If this number of troubles comes within an hour, they are reported even if each was short.
EPISODES_TOLD = 3
EPISODES_WITHIN_MS = 3_600_000
#: Kind -> seconds that a trouble must have lasted before it is reported, because a witness may be away for a moment.
PATIENCE_SECONDS = {NoticeKind.ACCOUNTED_UNTIL_STALE: 120.0}
#: The longest pause after a failed try, even if the receiver asks for a longer pause.
RETRY_SECONDS_MAX = 3_600.0
#: If a sender was killed, another process sends its message after this time. No try takes as long.
LEASE_SECONDS = 60.0
#: A claim whose end lies further ahead was made before the clock was set back. The factor allows for differences of
#: hosts' clocks.
LEASE_SECONDS_MAX = 2 * LEASE_SECONDS
#: Kinds of troubles that are not counted.
_UNCOUNTED = frozenset({NoticeKind.BREAKER_OPEN, NoticeKind.ROUNDS_STALE, NoticeKind.ACCOUNTED_UNTIL_STALE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The pace at which one notifier reports one trouble."""

    interval_seconds: float
    reminder_seconds: float
    gather_seconds: float = GATHER_SECONDS
    #: Time that a trouble of PASSING_KINDS has to pass by itself before it is reported.
    patience_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """One process' memory of a trouble: since when it exists, and when it came within the last hour."""

    #: The time since which the trouble exists. None: the trouble does not exist now.
    since_ms: int | None = None
    began_ms: tuple[int, ...] = ()
    #: The time at which the newest trouble of PAST_KINDS came or ended.
    newest_ms: int = 0

    def after(self, *, is_open: bool, since_ms: int, newest_ms: int = 0, now_ms: int) -> Episodes:
        """Returns the episodes after a look. `newest_ms`: the time of the newest unreported trouble of PAST_KINDS.

        If `newest_ms` is later than at the last look, a trouble came in between.
        """
        recent = tuple(at_ms for at_ms in self.began_ms if abs(now_ms - at_ms) < EPISODES_WITHIN_MS)
        is_new = self.since_ms is None and (is_open or newest_ms > self.newest_ms)
        began_ms = (*recent, now_ms)[-EPISODES_TOLD:] if is_new else recent
        since = None
        if is_open:
            since = min(since_ms if self.since_ms is None else self.since_ms, now_ms)
        return Episodes(since_ms=since, began_ms=began_ms, newest_ms=max(newest_ms, self.newest_ms))

    def are_told(self, pace: Pace, *, now_ms: int) -> bool:
        """Returns True if a notifier that has not reported the trouble yet should report it now."""
        patience_ms = round(pace.patience_seconds * 1000)
        lasts = self.since_ms is not None and now_ms - self.since_ms >= patience_ms
        return not patience_ms or lasts or len(self.began_ms) >= EPISODES_TOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The present trouble, compared with the reported troubles."""

    is_open: bool
    #: Number of troubles that were not reported yet.
    news: int
    count: int
    since_ms: int
    until_ms: int | None
    detail: str
    #: Troubles up to this time count as reported once the message was sent.
    mark_ms: int
    mark_count: int
    cause: Fact | None = None


def new_conversation(environment: str, notifier: str, place: Place, *, born_ms: int) -> Conversation:
    """Makes a conversation that has reported nothing. `born_ms`: the time at which the notifier began."""
    kind, topic, group = place
    return Conversation(
        environment=environment, notifier=notifier, kind=kind, topic=topic, group=group, version=0, mark_ms=born_ms
    )


def by_present_clock(conversation: Conversation, *, pace: Pace, now_ms: int) -> Conversation:
    """Returns the conversation without times in the future. Such times come from a ledger's clock that was set back.

    With a mark in the future, new troubles would count as reported, and messages would wait until that time. Without
    it, some reported troubles are counted a second time.
    """
    longest = RETRY_SECONDS_MAX if conversation.attempts else _patience_seconds(conversation, pace)
    is_too_far = conversation.next_at_ms - now_ms > round(max(longest, pace.interval_seconds) * 1000)
    is_ahead = conversation.kind in PAST_KINDS and conversation.mark_ms > now_ms
    return replace(
        conversation,
        mark_ms=now_ms - LATE_COMMIT_MS if is_ahead else conversation.mark_ms,
        mark_count=0 if is_ahead else conversation.mark_count,
        told_at_ms=_not_after(conversation.told_at_ms, now_ms),
        trouble_at_ms=_not_after(conversation.trouble_at_ms, now_ms),
        next_at_ms=now_ms if is_too_far else conversation.next_at_ms,
    )


def unheard(conversation: Conversation) -> Conversation:
    """Returns the conversation without waiting message and open trouble, for a kind that its notifier no longer
    reports.

    Otherwise, if the notifier reports the kind again, it would report the end of an old trouble as news.
    """
    return replace(conversation, is_open=False, waiting=None, attempts=0, error=None, is_refused=False)


def _not_after(at_ms: int | None, now_ms: int) -> int | None:
    return None if at_ms is None else min(at_ms, now_ms)


def after_standing(
    conversation: Conversation,
    trouble: StandingTrouble | None,
    *,
    pace: Pace,
    now_ms: int,
    new_id: Callable[[], str],
) -> Conversation | None:
    """Returns the conversation to write. None: the conversation stays as it is.

    `trouble`: the present trouble. None: there is no trouble now.
    """
    told_count = conversation.mark_count if conversation.is_open or conversation.kind in ENDLESS else 0
    if trouble is None:
        seen = _Seen(
            is_open=False, news=0, count=0, since_ms=now_ms, until_ms=now_ms, detail="", mark_ms=0, mark_count=0
        )
    else:
        is_newer = trouble.newest_ms > conversation.mark_ms and told_count > 0
        seen = _Seen(
            is_open=True,
            news=max(trouble.count - told_count, int(is_newer)),
            count=0 if trouble.kind in _UNCOUNTED else trouble.count,
            since_ms=trouble.since_ms,
            until_ms=trouble.until_ms,
            detail=trouble.detail,
            cause=trouble.cause,
            mark_ms=trouble.newest_ms,
            mark_count=trouble.count,
        )
    decided = _decide(conversation, seen, pace=pace, now_ms=now_ms, new_id=new_id)
    if decided is None and _is_idle(conversation) and seen.mark_count < told_count:
        return replace(conversation, mark_count=seen.mark_count)
    return decided


def after_past(
    conversation: Conversation, past: PastTroubles, *, pace: Pace, now_ms: int, new_id: Callable[[], str]
) -> Conversation | None:
    """Returns the conversation to write for a trouble of PAST_KINDS. None: the conversation stays as it is.

    `past`: the troubles after the conversation's mark.
    """
    is_too_many = past.count > COUNTED_TROUBLES_MAX
    news = past.count - conversation.mark_count
    seen = _Seen(
        is_open=past.is_open,
        # An outage is counted at its end, so an open outage was not counted yet.
        news=max(news, int(past.is_open and not conversation.is_open), 0),
        count=max(news, 0),
        since_ms=past.since_ms or now_ms,
        until_ms=None if past.is_open else past.until_ms or now_ms,
        detail=past.detail,
        mark_ms=past.recent_ms + LATE_COMMIT_MS if is_too_many else past.recent_ms,
        mark_count=0 if is_too_many else past.recent_count,
    )
    decided = _decide(conversation, seen, pace=pace, now_ms=now_ms, new_id=new_id)
    if decided is None and _is_idle(conversation) and news <= 0 and conversation.mark_count:
        if not past.recent_count:
            return replace(conversation, mark_ms=past.recent_ms, mark_count=0)
        if news < 0:
            return replace(conversation, mark_count=past.count)
    return decided


def after_patience(conversation: Conversation, past: PastTroubles, *, now_ms: int) -> Conversation | None:
    """Returns the conversation without the troubles that passed an hour ago and were not reported.

    None: the conversation stays as it is.
    """
    if past.is_open or past.count <= conversation.mark_count or now_ms - past.until_ms < EPISODES_WITHIN_MS:
        return None
    return replace(conversation, mark_ms=past.recent_ms, mark_count=past.recent_count)


def is_untold(conversation: Conversation) -> bool:
    """Returns True if nothing waits and the receiver knows of no trouble."""
    return _is_idle(conversation) and not conversation.is_open


def _is_idle(conversation: Conversation) -> bool:
    return conversation.waiting is None and not conversation.is_claimed


def _decide(
    conversation: Conversation, seen: _Seen, *, pace: Pace, now_ms: int, new_id: Callable[[], str]
) -> Conversation | None:
    if conversation.is_claimed:
        return None
    if conversation.waiting is not None:
        return _refreshed(conversation, conversation.waiting, seen, pace=pace, now_ms=now_ms, new_id=new_id)
    has_end = conversation.kind not in ENDLESS
    if seen.news:
        is_end = has_end and conversation.is_open and not seen.is_open
        due_ms = now_ms if is_end else _due_ms(conversation, pace, now_ms)
    elif has_end and conversation.is_open and not seen.is_open:
        is_end, due_ms = True, now_ms
    elif has_end and conversation.is_open and _is_reminder_due(conversation, pace, now_ms):
        is_end, due_ms = False, now_ms
    else:
        return None
    waiting = _waiting(conversation, seen, notice_id=new_id(), is_limited=not is_end, due_ms=due_ms, now_ms=now_ms)
    return replace(conversation, waiting=waiting, next_at_ms=due_ms)


def _due_ms(conversation: Conversation, pace: Pace, now_ms: int) -> int:
    due_ms = now_ms + round(_patience_seconds(conversation, pace) * 1000)
    if conversation.trouble_at_ms is None:
        return due_ms
    return max(due_ms, conversation.trouble_at_ms + round(pace.interval_seconds * 1000))


def _patience_seconds(conversation: Conversation, pace: Pace) -> float:
    return max(pace.gather_seconds, PATIENCE_SECONDS.get(conversation.kind, 0.0))


def _is_reminder_due(conversation: Conversation, pace: Pace, now_ms: int) -> bool:
    return now_ms - (conversation.told_at_ms or 0) >= round(pace.reminder_seconds * 1000)


def _refreshed(
    conversation: Conversation,
    waiting: WaitingNotice,
    seen: _Seen,
    *,
    pace: Pace,
    now_ms: int,
    new_id: Callable[[], str],
) -> Conversation | None:
    """Returns the waiting message with the present troubles."""
    old = waiting.notice
    if old.is_over and seen.is_open and not seen.news and conversation.attempts == 0:
        return replace(conversation, waiting=None)  # the trouble has come back before its end was sent
    is_unknown = conversation.attempts == 0 and not conversation.is_open
    if conversation.kind in PATIENCE_SECONDS and is_unknown and not seen.is_open:
        return replace(conversation, waiting=None)
    is_limited = waiting.is_limited
    due_ms = conversation.next_at_ms
    if seen.is_open and not is_limited:  # the trouble has come back, and the receiver may know of its end
        is_limited, due_ms = True, max(due_ms, _due_ms(conversation, pace, now_ms))
    has_end = conversation.kind not in ENDLESS
    if not seen.is_open and has_end:
        # The text stays if the trouble ended before it was reported, or if its end is sent again.
        until_ms = old.until_ms if old.is_over else seen.until_ms
        seen = replace(
            seen,
            until_ms=until_ms,
            since_ms=min(old.since_ms, seen.since_ms),
            count=max(seen.count, old.count),
            detail=seen.detail or old.detail,
            cause=seen.cause or old.cause,
        )
    elif not seen.is_open:
        return None
    first_due_ms = waiting.due_ms if due_ms == conversation.next_at_ms else due_ms
    fresh = _waiting(
        conversation, seen, notice_id=old.notice_id, is_limited=is_limited, due_ms=first_due_ms, now_ms=now_ms
    )
    if _substance(fresh) == _substance(waiting):
        return None
    if conversation.attempts:
        fresh = replace(fresh, notice=replace(fresh.notice, notice_id=new_id()))
    return replace(conversation, waiting=fresh, next_at_ms=due_ms)


def _substance(waiting: WaitingNotice) -> tuple[object, ...]:
    """Returns the values by which two messages differ, without times that change by themselves."""
    notice = waiting.notice
    told = notice.is_over, notice.count, notice.until_ms if notice.is_over else None
    return told if notice.kind in PAST_KINDS else (*told, waiting.mark_ms, waiting.mark_count)


def _waiting(
    conversation: Conversation, seen: _Seen, *, notice_id: str, is_limited: bool, due_ms: int, now_ms: int
) -> WaitingNotice:
    is_over = conversation.kind not in ENDLESS and not seen.is_open
    since_ms = seen.since_ms
    if conversation.is_open and conversation.since_ms is not None:
        since_ms = min(conversation.since_ms, since_ms)
    notice = Notice(
        notice_id=notice_id,
        environment=conversation.environment,
        kind=conversation.kind,
        topic=conversation.topic,
        group=conversation.group,
        is_over=is_over,
        count=seen.count,
        since_ms=since_ms,
        until_ms=seen.until_ms,
        detail=seen.detail,
        cause=seen.cause,
        written_at_ms=now_ms,
    )
    return WaitingNotice(
        notice=notice, mark_ms=seen.mark_ms, mark_count=seen.mark_count, is_limited=is_limited, due_ms=due_ms
    )


def once_told(conversation: Conversation, *, now_ms: int) -> Conversation:
    """Returns the conversation after its waiting message was sent."""
    waiting = conversation.waiting
    if waiting is None:
        return conversation
    notice = waiting.notice
    return replace(
        conversation,
        mark_ms=waiting.mark_ms,
        mark_count=waiting.mark_count,
        is_open=not notice.is_over and conversation.kind not in ENDLESS,
        since_ms=notice.since_ms,
        told_at_ms=now_ms,
        trouble_at_ms=now_ms if waiting.is_limited else conversation.trouble_at_ms,
        waiting=None,
        attempts=0,
        is_claimed=False,
        error=None,
        is_refused=False,
    )


def oldest_untold_ms(conversations: Collection[Conversation], *, now_ms: int) -> int | None:
    """Returns the time since which the longest due message is unsent. None: no message is due."""
    due = (one.waiting.due_ms for one in conversations if one.waiting is not None)
    return min((due_ms for due_ms in due if due_ms <= now_ms), default=None)
