"""A window is two instants: nothing about clocks is guessed."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from reconciler.audit.collect.window import parse_window
from reconciler.audit.errors import AuditError
from reconciler.audit.result.values import Window

HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def hours(text: str, timezone: str | None = None) -> float:
    window = parse_window(text, timezone)
    return (window.end_ms - window.start_ms) / HOUR_MS


@pytest.mark.parametrize(
    ("text", "timezone", "start", "end"),
    [
        ("2026-03-01T00:00Z/2026-03-01T01:00Z", None, "2026-03-01T00:00+00:00", "2026-03-01T01:00+00:00"),
        (
            "2026-03-01T00:00:00.250+08:00/2026-03-01T01:00:00,5+0800",
            None,
            "2026-03-01T00:00:00.250+08:00",
            "2026-03-01T01:00:00.500+08:00",
        ),
        (
            "2026-03-28T00:00[Europe/Berlin]/2026-03-29T00:00[Europe/Berlin]",
            None,
            "2026-03-28T00:00+01:00",
            "2026-03-29T00:00+01:00",
        ),
        ("2026-07-01/2026-07-02", "Asia/Shanghai", "2026-07-01T00:00+08:00", "2026-07-02T00:00+08:00"),
        # An offset, or a zone of its own, is more than --timezone.
        ("2026-07-01T00:00Z/2026-07-01[UTC]", "Asia/Shanghai", None, None),
        ("2025-12-31/2026-01-01", "America/New_York", "2025-12-31T00:00-05:00", "2026-01-01T00:00-05:00"),
    ],
)
def test_the_instants_of_a_window(text: str, timezone: str | None, start: str | None, end: str | None) -> None:
    if start is None or end is None:
        with pytest.raises(AuditError, match="one instant"):
            parse_window(text, timezone)
    else:
        assert parse_window(text, timezone) == Window(start_ms=ms(start), end_ms=ms(end))


@pytest.mark.parametrize(
    ("day", "after", "zone", "length"),
    [
        ("2026-03-29", "2026-03-30", "Europe/Berlin", 23),
        ("2026-10-25", "2026-10-26", "Europe/Berlin", 25),
        ("2026-04-05", "2026-04-06", "Australia/Lord_Howe", 24.5),
        ("2025-12-31", "2026-01-01", "Europe/Berlin", 24),
        # The clock skipped midnight, or showed it twice: the first instant of the day counts.
        ("2026-09-06", "2026-09-07", "America/Santiago", 23),
        ("2026-11-01", "2026-11-02", "America/Havana", 25),
    ],
)
def test_a_day_by_daylight_saving_change_is_whole(day: str, after: str, zone: str, length: float) -> None:
    assert hours(f"{day}/{after}", zone) == length
    assert hours(f"{day}[{zone}]/{after}[{zone}]") == length


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026-03-29T02:30[Europe/Berlin]/2026-03-30[Europe/Berlin]", "was skipped by the clock"),
        (
            "2026-10-25T02:30[Europe/Berlin]/2026-10-26[Europe/Berlin]",
            "write 2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00",
        ),
        ("2026-10-25T02:30+05:00[Europe/Berlin]/2026-10-26[Europe/Berlin]", "never had this offset"),
        ("2011-12-30[Pacific/Apia]/2011-12-31[Pacific/Apia]", "left out of the zone's calendar"),
        ("2026-03-29T00:00/2026-03-30T00:00Z", "add an offset or a zone, or give --timezone"),
        ("2026-03-29/2026-03-30", "add an offset or a zone"),
        ("2026-03-29T00:00Z", "expected START/END"),
        ("2026-03-29T00:00Z/2026-03-29T00:00Z", "END is not included"),
        ("2026-03-30T00:00Z/2026-03-29T00:00Z", "END comes before START"),
        ("2026-02-29T00:00Z/2026-03-29T00:00Z", "is no time"),
        ("2026-03-29T25:00Z/2026-03-30T00:00Z", "is no time"),
        ("2026-03-29T00:00:00.1234Z/2026-03-30T00:00Z", "to the millisecond"),
        ("2026-03-29[Europe/Berln]/2026-03-30[Europe/Berlin]", "no zone that this machine knows"),
        ("2026-03-29[../../etc/passwd]/2026-03-30[Europe/Berlin]", "is no ISO 8601 time"),
        ("yesterday/today", "is no ISO 8601 time"),
        ("", "expected START/END"),
    ],
)
def test_what_names_no_instant_is_refused_with_a_remedy(text: str, message: str) -> None:
    with pytest.raises(AuditError, match=re.escape(message)) as refused:
        parse_window(text)
    assert refused.value.reason == "usage"


def test_an_offset_beside_a_zone_tells_the_two_hours_apart() -> None:
    text = "2026-10-25T02:30+02:00[Europe/Berlin]/2026-10-25T02:30+01:00[Europe/Berlin]"
    assert hours(text) == 1


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(AuditError, match="--timezone"):
        parse_window("2026-03-29/2026-03-30", "Mars/Olympus")


def test_a_window_is_told_in_utc() -> None:
    assert str(parse_window("2026-03-29[Asia/Shanghai]/2026-03-30[Asia/Shanghai]")) == (
        "2026-03-28T16:00:00.000Z to 2026-03-29T16:00:00.000Z"
    )
