"""Forms of times and durations for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo

from markupsafe import Markup

from reconciler.clock import utc_text
from reconciler.web.console.catalogue import Catalogue

_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60}


def moment(at_ms: object, zone: ZoneInfo, timespec: Literal["seconds", "milliseconds"] = "seconds") -> Markup:
    """Makes a time element in a zone. A time that no calendar contains is shown as its number."""
    if type(at_ms) is not int:
        return Markup("—")
    told = utc_text(at_ms, timespec=timespec)
    try:
        seen = datetime.fromtimestamp(at_ms // 1000, tz=UTC).replace(microsecond=at_ms % 1000 * 1000).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return Markup("{}").format(told)
    shown = seen.isoformat(sep=" ", timespec=timespec).replace("+00:00", "Z")
    return Markup('<time datetime="{}">{}</time>').format(told, shown)


def duration(milliseconds: object, words: Catalogue) -> Markup:
    """Writes a duration in its largest unit. The number is rounded down."""
    if type(milliseconds) is not int:
        return Markup("—")
    seconds = max(0, milliseconds // 1000)
    for unit, length in _SECONDS.items():
        if seconds >= 2 * length:
            return words.text(f"duration.{unit}", number=seconds // length)
    return words.text("duration.seconds", number=seconds)
