"""Parses the window `START/END` of an audit. START and END are ISO 8601 times that name one instant.

A time names an instant by an offset (`2026-03-29T00:00+01:00`, `...Z`), by a zone (`2026-03-29T00:00[Europe/Berlin]`),
by both as in RFC 9557, or by the command's zone (--timezone). A date alone is the first instant of that day, so days of
23 and 25 hours are whole days. A local time is refused if the clock skipped the time or showed the time twice.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reconciler.audit.errors import AuditError
from reconciler.audit.result.values import Window

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The slash between START and END. Zones in brackets hold slashes of their own.
_BETWEEN = re.compile(r"/(?![^\[]*\])")
_TIME = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<time>\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,3})?)?)(?P<offset>Z|[+-]\d{2}:?\d{2})?)?"
    r"(?:\[(?P<zone>[A-Za-z0-9_+/-]+)\])?"
)
_EXAMPLE = "for example 2026-03-29T00:00+01:00, or 2026-03-29[Europe/Berlin]"


def parse_window(text: str, timezone: str | None = None) -> Window:
    """Parses START/END to milliseconds UTC. The window ends before END. Raises AuditError("usage")."""
    parts = _BETWEEN.split(text.strip())
    if len(parts) != 2:
        raise _usage(text, f"expected START/END, {_EXAMPLE}")
    default = None if timezone is None else _zone(timezone, "--timezone")
    start_ms, end_ms = (instant_ms(part, default) for part in parts)
    if start_ms == end_ms:
        raise _usage(text, "START and END are one instant, so nothing is in it; END is not included: write a later one")
    if start_ms > end_ms:
        raise _usage(text, "END comes before START; write the earlier one first")
    return Window(start_ms=start_ms, end_ms=end_ms)


def instant_ms(text: str, default: tzinfo | None = None) -> int:
    """Parses an instant to milliseconds UTC.

    Raises AuditError("usage") if the text names no instant, or two instants.
    """
    text = text.strip()
    found = _TIME.fullmatch(text)
    if found is None:
        raise _usage(text, f"is no ISO 8601 time to the millisecond, {_EXAMPLE}")
    zone = default if found["zone"] is None else _zone(found["zone"], text)
    if zone is None and found["offset"] is None:
        raise _usage(text, f"names no instant: add an offset or a zone, or give --timezone; {_EXAMPLE}")
    try:
        if found["time"] is None:
            moment = _first_instant(date.fromisoformat(found["date"]), zone or UTC, text)
        else:
            local = datetime.fromisoformat(f"{found['date']}T{found['time'].replace(',', '.')}")
            if found["offset"] is None:
                moment = _in_zone(local, zone or UTC, text)
            else:
                moment = _with_offset(local, found["offset"], zone if found["zone"] else None, text)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise _usage(text, f"is no time: {error}") from error


def _with_offset(local: datetime, offset: str, zone: tzinfo | None, text: str) -> datetime:
    """Finds the instant that an offset names. A zone in brackets must agree with the offset."""
    moment = datetime.fromisoformat(f"{local.isoformat()}{offset}")
    if zone is not None and moment.astimezone(zone).replace(tzinfo=None) != local:
        raise _usage(text, "the zone never had this offset at this time; remove one of the two")
    return moment


def _in_zone(local: datetime, zone: tzinfo, text: str) -> datetime:
    """Finds the only instant at which a clock of the zone showed this time."""
    shown = _instants(local, zone)
    if len(shown) == 1:
        return shown[0]
    if not shown:
        raise _usage(text, "this local time was skipped by the clock; write the instant with an offset")
    choice = " or ".join(moment.astimezone(zone).isoformat() for moment in shown)
    raise _usage(text, f"the clock showed this local time twice; write {choice}")


def _instants(local: datetime, zone: tzinfo) -> list[datetime]:
    candidates = {local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(moment for moment in candidates if moment.astimezone(zone).replace(tzinfo=None, fold=0) == local)


def _first_instant(day: date, zone: tzinfo, text: str) -> datetime:
    """Finds the first instant of a day: the first midnight, or the first minute after a midnight that was skipped."""
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a local time, which gets its zone below
    for minute in range(24 * 60):
        shown = _instants(midnight + timedelta(minutes=minute), zone)
        if shown:
            return shown[0]
    raise _usage(text, "this day was left out of the zone's calendar")


def _zone(name: str, where: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"{name!r} is no zone that this machine knows: correct it, install tzdata, or write an offset"
        raise _usage(where, message) from error


def _usage(text: str, why: str) -> AuditError:
    return AuditError("usage", f"--window {text!r}: {why}")
