"""Turns findings of the folder's audits into trouble, of which notices tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time

from reconciler.contract.tables import NoticeKind
from reconciler.settings.schema import Settings
from reconciler.telling.notifier import Watch
from reconciler.telling.ports.notices import StandingTrouble
from reconciler.telling.ports.reports import LedgerReports
from reconciler.web.audits.days import AuditCalendar, DayState, calendar_of
from reconciler.web.audits.folder import LINK
from reconciler.web.audits.shelf import AuditShelf

#: States of days of which notices tell.
_TOLD = frozenset({DayState.VIOLATIONS, DayState.DIFFERENCES})


def audits_watch(shelf: AuditShelf, settings: Settings) -> Watch:
    """Makes a watch over the folder's audits. The watch reports nothing until every audit of the folder is verified,
    because the count of days would grow during verification."""
    configured = {(one.topic, one.group) for one in settings.subscriptions}

    def watch(_: LedgerReports, now_ms: int) -> Mapping[NoticeKind, Sequence[StandingTrouble]]:
        look = shelf.look()
        if look.problem:
            return {}
        entries = [entry for entry in look.entries if entry.problem != LINK]
        found = calendar_of(
            ((entry.name, check) for entry, check in zip(entries, shelf.checks(entries), strict=True)),
            environment=settings.environment,
            configured=configured,
            today=datetime.fromtimestamp(now_ms / 1000, tz=UTC).date(),
        )
        return {} if found.waiting else {NoticeKind.AUDIT_VIOLATION: violated_days(found, now_ms=now_ms)}

    return watch


def violated_days(found: AuditCalendar, *, now_ms: int) -> Sequence[StandingTrouble]:
    """Returns one trouble, with the number of days and the newest day. An altered audit without a day counts as one
    day."""
    days = sorted(day for day, audited in found.days.items() if audited.state in _TOLD)
    undated = sorted(set(found.altered).difference(*(audited.names for audited in found.days.values())))
    if not days and not undated:
        return []
    times = [round(datetime.combine(day, time.min, tzinfo=UTC).timestamp() * 1000) for day in days]
    return [
        StandingTrouble(
            kind=NoticeKind.AUDIT_VIOLATION,
            count=len(days) + len(undated),
            since_ms=min(times, default=now_ms),
            newest_ms=max(times, default=0),
            detail=days[-1].isoformat() if days else undated[-1],
        )
    ]
