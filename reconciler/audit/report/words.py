"""Writes numbers, times and durations for the report. The locale changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reconciler.audit.result.times import time_text

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def number(value: int) -> str:
    """Writes a number as 12,345."""
    return f"{value:,}"


def share(part: int, whole: int) -> str:
    """Writes a share in percent. Only an exact 0 or 100 is shown as 0 or 100."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    return f"{percent:.0f} %" if part in (0, whole) else f"{percent:.2f} %"


def duration(milliseconds: int) -> str:
    """Writes a duration in at most two units: 12 ms, 1.25 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if milliseconds < _SECOND:
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE:
        return f"{milliseconds / _SECOND:.2f}".rstrip("0").rstrip(".") + " s"
    for unit, name, below, name_below in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", _SECOND, "s"),
    ):
        if milliseconds >= unit:
            rest = milliseconds % unit // below
            return f"{milliseconds // unit} {name}" + (f" {rest} {name_below}" if rest else "")
    return f"{milliseconds} ms"


def moment(milliseconds: int) -> str:
    """Writes a time as 2026-11-21 10:00:00.123 UTC. A fraction of zero is left out."""
    text = time_text(milliseconds)
    return text.replace("T", " ").replace("Z", " UTC").replace(".000 ", " ")


def hour_label(milliseconds: int, bin_hours: int) -> str:
    """Writes the beginning of a bar."""
    text = time_text(milliseconds)
    return text[:10] if bin_hours % 24 == 0 else f"{text[:10]} {text[11:16]}"


def in_zone(milliseconds: int, zone: str) -> str | None:
    """Writes a time as clocks of the zone show the time. None: the zone is UTC or unknown."""
    if zone == "UTC":
        return None
    try:
        local = datetime.fromtimestamp(milliseconds / 1000, tz=UTC).astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, OverflowError, ValueError, OSError):
        return None
    return local.strftime("%Y-%m-%d %H:%M:%S ") + local.strftime("%z")[:3] + ":" + local.strftime("%z")[3:5]
