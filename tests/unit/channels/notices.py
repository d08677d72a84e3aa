"""Notices as tests send them, and the bytes that a channel is to make of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from reconciler.contract.tables import NoticeKind
from reconciler.telling.ports.notices import Notice

GOLDEN = Path(__file__).parent / "golden"
#: 2026-11-25 03:12:05.678 in UTC.
AT_MS = 1_795_576_325_678
CONSOLE_URL = "https://console.example.com/reconciler"


def notice(kind: NoticeKind = NoticeKind.LOSS_PROVED, *, is_over: bool = False, detail: str | None = None) -> Notice:
    """One of a kind, with everything that it can have."""
    has_topic = kind not in (
        NoticeKind.OUTAGE,
        NoticeKind.AUDIT_VIOLATION,
        NoticeKind.LEDGER_AWAY,
        NoticeKind.BROKER_AWAY,
        NoticeKind.DATABASE_AWAY,
    )
    has_count = kind in (
        NoticeKind.LOSS_PROVED,
        NoticeKind.QUARANTINED,
        NoticeKind.REPAIR_FAILED,
        NoticeKind.AUDIT_VIOLATION,
    )
    has_until = is_over or kind is NoticeKind.ACCOUNTED_UNTIL_STALE
    return Notice(
        notice_id="01JDHQZX8M4T6W2C9V3B5N7K1R",
        environment="prod",
        kind=kind,
        topic="PAY_ORDERS" if has_topic else None,
        group="billing-consumer" if has_topic else None,
        is_over=is_over,
        count=3 if has_count and not is_over else 0,
        since_ms=AT_MS - 600_000,
        until_ms=AT_MS - 60_000 if has_until else None,
        detail=_DETAILS[kind] if detail is None else detail,
        written_at_ms=AT_MS,
    )


_DETAILS = {
    NoticeKind.LOSS_PROVED: "7F000001000018B4AAC2086E5A0C0000",
    NoticeKind.QUARANTINED: "7F000001000018B4AAC2086E5A0C0001",
    NoticeKind.REPAIR_FAILED: "7F000001000018B4AAC2086E5A0C0002",
    NoticeKind.BREAKER_OPEN: "41 losses of 60 announced in one round",
    NoticeKind.OUTAGE: "redis://redis-1:6379/0 does not answer",
    NoticeKind.AUDIT_VIOLATION: "2026-11-24",
    NoticeKind.ROUNDS_STALE: "",
    NoticeKind.ACCOUNTED_UNTIL_STALE: "shard 3 had its last round at 2026-11-25T03:02:00Z",
    NoticeKind.LEDGER_AWAY: "could not connect to postgres-1",
    NoticeKind.BROKER_AWAY: "rocketmq: broker-b: 10.0.0.7:10911: Connection refused",
    NoticeKind.DATABASE_AWAY: "outbox of shop, inbox of PAY_ORDERS/billing: could not connect to postgres-2",
}


def every_notice() -> list[Notice]:
    """Each kind, when it begins and when it is over; losses that go on, and that are settled; the test."""
    kinds = [notice(kind, is_over=is_over) for kind in NoticeKind for is_over in (False, True)]
    others = [replace(notice(), count=0), replace(notice(is_over=True), count=3)]
    outages = replace(notice(NoticeKind.OUTAGE, is_over=True), count=2)
    return [*kinds, *others, outages, replace(notice(), is_test=True)]


def hostile_notice(text: str) -> Notice:
    """A notice in which each text from outside is this one."""
    named = replace(notice(), detail=text, business_id=text)
    return replace(named, topic=text, group=text, notice_id=text, environment=text)


def assert_golden(name: str, found: bytes) -> None:
    """Compares with a file; WRITE_GOLDEN=1 in the environment writes it anew, to be read before it is committed."""
    file = GOLDEN / name
    if os.environ.get("WRITE_GOLDEN"):
        file.write_bytes(found)
    assert found == file.read_bytes(), f"{name} differs; WRITE_GOLDEN=1 shows how in the diff"
