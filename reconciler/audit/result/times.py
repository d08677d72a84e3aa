"""Times as text in UTC, for documents and messages."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(milliseconds: int) -> str:
    """Writes RFC 3339 UTC with milliseconds. A time outside of the years 1 to 9999 is written as a number."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
