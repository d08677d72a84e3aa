"""Which days count as audited."""

from __future__ import annotations

from datetime import date, datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from reconciler.web.audits.check import WAITING, AuditCheck
from reconciler.web.audits.days import AuditCalendar, DayState, calendar_of
from reconciler.web.audits.notices import violated_days
from tests.unit.web.audit_cases import DAY_MS, START_MS, altered, check, statement

BILLING, STOCK = ("ORDERS", "billing"), ("ORDERS", "stock")
D20, D21, D22, D23 = (date(2026, 11, day) for day in (20, 21, 22, 23))


def calendar(
    audits: dict[str, AuditCheck], *, today: date = D22, configured: tuple[tuple[str, str], ...] = (BILLING,)
) -> AuditCalendar:
    return calendar_of(audits.items(), environment="production", configured=configured, today=today)


def state(found: AuditCalendar, day: date) -> DayState | None:
    return found.days[day].state if day in found.days else None


def test_a_day_between_two_statements_is_not_missed() -> None:
    found = calendar({"a": check(statement()), "b": check(statement(day=2))}, today=D23)
    assert (found.missing, found.last_verified, found.severity) == ([D21], D22, "warn")
    assert state(found, D20) is state(found, D22) is DayState.CLEAN


@pytest.mark.parametrize(("today", "missing"), [(D21, []), (D22, []), (D23, [D21])])
def test_yesterday_is_missed_before_its_audit_can_be_there(today: date, missing: list[date]) -> None:
    assert calendar({"a": check(statement())}, today=today).missing == missing


def test_what_nobody_vouches_for_is_counted_as_audited() -> None:
    found = calendar(
        {
            "unsigned": check(statement(signature_holds=False, signed_by=None), verdict="no answer"),
            "altered": altered(statement(day=1)),
            "waiting": WAITING,
            "other": check(statement(day=2, environment="staging", violations=7)),
        }
    )
    assert (state(found, D20), state(found, D21), state(found, D22)) == (
        DayState.UNVERIFIED,
        DayState.DIFFERENCES,
        None,
    )
    assert (found.last_verified, found.violations, found.missing, found.severity) == (None, 0, [], "bad")
    assert (found.waiting, found.altered, found.unverified) == (["waiting"], ["altered"], ["unsigned"])


def test_an_altered_audit_that_tells_no_day_is_told_to_nobody() -> None:
    """Whoever alters one may take its statements away as well."""
    gone = calendar({"day-1": altered()})
    assert gone.days == {}
    (trouble,) = violated_days(gone, now_ms=START_MS)
    assert (trouble.count, trouble.since_ms, trouble.detail) == (1, START_MS, "day-1")
    both = calendar({"day-1": altered(), "day-2": altered(statement()), "day-3": check(statement(day=2))})
    (trouble,) = violated_days(both, now_ms=0)
    assert (trouble.count, trouble.since_ms, trouble.detail) == (2, START_MS, "2026-11-20")
    assert violated_days(calendar({"day-3": check(statement())}), now_ms=0) == []


def test_violations_are_hidden_by_another_audit_of_the_day() -> None:
    found = calendar({"clean": check(statement()), "bad": check(statement(verdict="violations", violations=3))})
    assert found.days[D20].state is DayState.VIOLATIONS
    assert (found.days[D20].names, found.violations, found.violating) == (("bad", "clean"), 3, ["bad"])
    assert found.last_verified == D20


def test_an_audit_without_an_answer_outweighs_the_one_that_was_made_later() -> None:
    none = check(statement(verdict="no answer"))
    assert state(calendar({"a": none}), D20) is DayState.NO_ANSWER
    found = calendar({"a": none, "b": check(statement())})
    assert (state(found, D20), found.last_verified) == (DayState.CLEAN, D20)


def test_violations_that_were_found_without_an_answer_are_not_shown() -> None:
    found = calendar({"a": check(statement(verdict="no answer", violations=2))})
    assert (state(found, D20), found.violations, found.last_verified) == (DayState.VIOLATIONS, 2, None)


def hours(first: int, last: int, **more: Any) -> dict[str, Any]:
    start_ms, end_ms = (START_MS + hour * DAY_MS // 24 for hour in (first, last))
    return statement(**more) | {"start_ms": start_ms, "end_ms": end_ms}


def test_some_hours_are_taken_for_a_day() -> None:
    assert state(calendar({"a": check(hours(0, 12))}), D20) is DayState.PART
    assert state(calendar({"a": check(hours(0, 12)), "b": check(hours(13, 24))}), D20) is DayState.PART
    assert calendar({"a": check(hours(0, 12)), "b": check(hours(11, 24))}).last_verified == D20
    several = calendar({"a": check(hours(0, 72))}, today=D23)
    assert (several.last_verified, len(several.days)) == (D22, 3)


def test_one_subscription_is_taken_for_all() -> None:
    both = check(statement(), statement(group="stock"))
    one = check(statement(day=1))
    found = calendar({"a": both, "b": one}, configured=(BILLING, STOCK))
    assert (state(found, D21), found.last_verified) == (DayState.PART, D20)
    retired = calendar({"a": both, "b": one})
    assert (state(retired, D21), retired.last_verified) == (DayState.CLEAN, D21)
    new = calendar({"b": one, "c": check(statement(day=2), statement(day=2, group="stock"))}, configured=(STOCK,))
    assert new.days[D21].state is DayState.CLEAN


def test_a_day_of_another_zone_is_cut_in_two() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    days = [datetime(2026, 3, day, tzinfo=berlin) for day in (28, 29, 30)]  # the second has 23 hours
    audits = {
        f"{number}": check(
            statement(zone="Europe/Berlin")
            | {"start_ms": int(start.timestamp() * 1000), "end_ms": int(end.timestamp() * 1000)}
        )
        for number, (start, end) in enumerate(pairwise(days))
    }
    found = calendar(audits, today=date(2026, 3, 30))
    assert set(found.days) == {date(2026, 3, 28), date(2026, 3, 29)}
    assert {one.state for one in found.days.values()} == {DayState.CLEAN}


@pytest.mark.parametrize(
    "window",
    [
        {"start_ms": -1, "end_ms": -1},
        {"start_ms": 5, "end_ms": 4},
        {"start_ms": 0, "end_ms": 2**53 - 1},
        {"start_ms": 0, "end_ms": 253_402_300_799_000, "zone": "../../etc/passwd"},
        {"start_ms": 253_402_300_700_000, "end_ms": 253_402_300_799_000, "zone": "Pacific/Kiritimati"},
        {"zone": "\x00"},
        {"zone": ""},
        {"zone": "Europe"},
    ],
    ids=str,
)
def test_a_window_that_is_none_ends_the_page_or_fills_the_memory(window: dict[str, Any]) -> None:
    for found in (check(statement() | window), altered(statement() | window)):
        assert len(calendar({"a": found}).days) <= 62
        assert len(calendar({"a": found}).missing) <= 1_001
