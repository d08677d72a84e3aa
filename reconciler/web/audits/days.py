"""The days that have a statement, and the outcome of each day. Each audit was requested in a time zone, in which its
days are counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from reconciler.web.audits.check import AuditCheck, AuditState, AuditStatement

#: Maximum number of marked days of one window. An audit usually covers a day or a month.
WINDOW_DAYS_MAX = 62
#: Maximum number of days without a statement that are counted. The count goes back from the last such day.
MISSING_DAYS_MAX = 1_000
#: A day is audited on the next day. It counts as missing only after that next day.
_AUDITED_WITHIN = timedelta(days=2)
_DAY_SECONDS = 86_400
_LAST_MS = 253_402_300_799_000

Subscription = tuple[str, str]


class DayState(StrEnum):
    """The outcome of a day. The list begins with the worst outcome."""

    #: A file differs from its signed digest.
    DIFFERENCES = "differences"
    VIOLATIONS = "violations"
    #: Nothing proves the outcome: the statement is unsigned, damaged, or not verified to the end.
    UNVERIFIED = "unverified"
    #: The statement says that the audit had no answer.
    NO_ANSWER = "no_answer"
    #: Some hours of the day, or some subscriptions, have no statement.
    PART = "part"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedDay:
    """One day that an audit covers."""

    state: DayState
    #: Audits that cover the day. The first audit decides the day's state.
    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCalendar:
    """The sum of all audits of the folder."""

    days: Mapping[date, AuditedDay]
    #: Days that no audit covers. They lie after the first covered day, and before yesterday.
    missing: Sequence[date]
    #: The last day that valid statements cover completely. None: there is no such day.
    last_verified: date | None
    #: Names of audits.
    waiting: Sequence[str]
    altered: Sequence[str]
    unverified: Sequence[str]
    violating: Sequence[str]
    #: Number of violations in valid statements.
    violations: int

    @property
    def severity(self) -> str:
        """A class of the style."""
        if self.altered:
            return "bad"
        if self.violating or self.unverified or self.missing:
            return "warn"
        return "notice" if self.waiting or self.last_verified is None else "good"


@dataclass(slots=True)
class _Marks:
    """Marks collected from the audits."""

    names: dict[date, dict[DayState, list[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    #: Subscription -> day -> spans that valid statements cover, each as its first second and its end second.
    covered: dict[Subscription, dict[date, list[tuple[int, int]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def mark(self, days: Iterable[date], state: DayState, name: str) -> None:
        """Adds the audit to these days. Each day lists the audit once."""
        for day in days:
            found = self.names[day][state]
            if name not in found:
                found.append(name)


def calendar_of(
    audits: Iterable[tuple[str, AuditCheck]],
    *,
    environment: str,
    configured: Collection[Subscription],
    today: date,
) -> AuditCalendar:
    """Makes the calendar. `audits`: name and check of each audit.

    A subscription counts from its first statement on. It counts to its last statement, or for ever if it is configured.
    """
    marks = _Marks()
    named: dict[str, list[str]] = {name: [] for name in ("waiting", "altered", "unverified", "violating")}
    violations = 0
    for name, check in audits:
        match check.state:
            case AuditState.WAITING:
                named["waiting"].append(name)
            case AuditState.VERIFIED:
                found = sum(max(0, one.violations) for one in check.statements if one.environment == environment)
                violations += found
                named["violating"] += [name] if found else []
                _mark_verified(marks, name, check, environment)
            case AuditState.DIFFERENCES:
                named["altered"].append(name)
                marks.mark(_days_of(check.statements), DayState.DIFFERENCES, name)
            case AuditState.NO_ANSWER:
                named["unverified"].append(name)
                marks.mark(_days_of(check.statements), DayState.UNVERIFIED, name)
    whole = set(_whole_days(marks, configured))
    days = {
        day: AuditedDay(state=_state(found, is_whole=day in whole), names=_names(found))
        for day, found in marks.names.items()
    }
    trusted = [day for covered in marks.covered.values() for day in covered]
    return AuditCalendar(
        days=days,
        missing=list(_missing(days, trusted, today)),
        last_verified=max(whole, default=None),
        violations=violations,
        **named,
    )


def _mark_verified(marks: _Marks, name: str, check: AuditCheck, environment: str) -> None:
    for one in check.statements:
        if one.environment != environment or not one.signature_holds:
            continue
        spans = _spans(one.start_ms, one.end_ms, one.zone)
        state = DayState.NO_ANSWER if one.verdict == "no answer" else DayState.CLEAN
        marks.mark((day for day, _, _ in spans), DayState.VIOLATIONS if one.violations > 0 else state, name)
        if state is DayState.NO_ANSWER:
            continue
        for day, since, until in spans:
            marks.covered[one.topic, one.group][day].append((since, until))


def _state(found: Mapping[DayState, Sequence[str]], *, is_whole: bool) -> DayState:
    for state in (DayState.DIFFERENCES, DayState.VIOLATIONS):
        if state in found:
            return state
    if DayState.CLEAN in found:
        return DayState.CLEAN if is_whole else DayState.PART
    return DayState.NO_ANSWER if DayState.NO_ANSWER in found else DayState.UNVERIFIED


def _names(found: Mapping[DayState, Sequence[str]]) -> Sequence[str]:
    order = (DayState.DIFFERENCES, DayState.VIOLATIONS, DayState.CLEAN, DayState.NO_ANSWER, DayState.UNVERIFIED)
    return tuple(dict.fromkeys(name for state in order for name in found.get(state, ())))


def _whole_days(marks: _Marks, configured: Collection[Subscription]) -> Iterator[date]:
    """Yields the completely covered days. On such a day, each subscription of that time has statements from the first
    second to the last."""
    ends = {
        subscription: (min(covered), date.max if subscription in configured else max(covered))
        for subscription, covered in marks.covered.items()
    }
    for day in {day for covered in marks.covered.values() for day in covered}:
        asked = [subscription for subscription, (first, last) in ends.items() if first <= day <= last]
        if all(_is_whole(marks.covered[subscription].get(day, ())) for subscription in asked):
            yield day


def _is_whole(spans: Sequence[tuple[int, int]]) -> bool:
    reached = 0
    for since, until in sorted(spans):
        if since > reached:
            return False
        reached = max(reached, until)
    return reached >= _DAY_SECONDS


def _missing(days: Collection[date], trusted: Sequence[date], today: date) -> Iterator[date]:
    if not trusted:
        return
    last = max(max(trusted), today - _AUDITED_WITHIN)
    first = max(min(trusted), last - timedelta(days=MISSING_DAYS_MAX))
    for number in range((last - first).days + 1):
        if (day := first + timedelta(days=number)) not in days:
            yield day


def _days_of(statements: Iterable[AuditStatement]) -> Iterator[date]:
    for window in {(one.start_ms, one.end_ms, one.zone) for one in statements}:
        yield from (day for day, _, _ in _spans(*window))


@lru_cache(maxsize=2_000)
def _spans(start_ms: int, end_ms: int, zone: str) -> Sequence[tuple[date, int, int]]:
    """Returns the days of a window in its zone. Each day comes with its first second and its end second in the window.
    Empty: the window is impossible."""
    if not 0 <= start_ms < end_ms <= _LAST_MS:
        return ()
    start, end = (_local(ms, zone) for ms in (start_ms, end_ms))
    found = []
    for number in range(min((end.date() - start.date()).days + 1, WINDOW_DAYS_MAX)):
        day = start.date() + timedelta(days=number)
        midnight = datetime.combine(day, datetime.min.time())
        since = max(0, int((start - midnight).total_seconds()))
        until = min(_DAY_SECONDS, int((end - midnight).total_seconds()))
        if since < until:
            found.append((day, since, until))
    return tuple(found)


def _local(at_ms: int, zone: str) -> datetime:
    """Converts to the local time of the zone. An unknown zone counts as UTC."""
    try:
        known = ZoneInfo(zone)
    except (ValueError, OSError, LookupError):
        known = ZoneInfo("UTC")
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    try:
        return at.astimezone(known).replace(tzinfo=None)
    except OverflowError:
        return at.replace(tzinfo=None)
