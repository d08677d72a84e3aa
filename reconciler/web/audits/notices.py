"""What the audits of the folder have found, as trouble that people are told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time

from reconciler.contract.tables import NoticeKind
from reconciler.policy.ports import LedgerReports, StandingTrouble
from reconciler.settings.schema import Settings
from reconciler.web.audits.days import AuditCalendar, DayState, calendar_of
from reconciler.web.audits.folder import LINK
from reconciler.web.audits.shelf import AuditShelf
from reconciler.wiring.notices import Watch

#: A day in one of these states is told.
_TOLD = frozenset({DayState.VIOLATIONS, DayState.DIFFERENCES})


def audits_watch(shelf: AuditShelf, settings: Settings) -> Watch:
    """Says nothing before every audit of the folder was verified: the days that it counts would grow by themselves."""
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
        return {} if found.waiting else {NoticeKind.AUDIT_VIOLATION: violated_days(found)}

    return watch


def violated_days(found: AuditCalendar) -> Sequence[StandingTrouble]:
    """One trouble: how many days, and the newest of them."""
    days = sorted(day for day, audited in found.days.items() if audited.state in _TOLD)
    if not days:
        return []
    first_ms, newest_ms = (
        round(datetime.combine(day, time.min, tzinfo=UTC).timestamp() * 1000) for day in (days[0], days[-1])
    )
    kind, detail = NoticeKind.AUDIT_VIOLATION, days[-1].isoformat()
    return [StandingTrouble(kind=kind, count=len(days), since_ms=first_ms, newest_ms=newest_ms, detail=detail)]
