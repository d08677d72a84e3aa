"""A folder of audits and what is known of each, without a process that verifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reconciler.clock import Clock, SystemClock
from reconciler.web.audits.check import AuditCheck, AuditState, check_of
from reconciler.web.audits.folder import AuditEntry, look_at
from reconciler.web.audits.shelf import AuditShelf
from tests.polling import eventually

DAY_MS = 86_400_000
#: 2026-11-20 00:00:00 UTC.
START_MS = 1_795_132_800_000
KEY = "e3b70601da0b8dd8a73a7ad710146dd282884ea37a1c7993f9ebb71c7e0f9919"


def statement(*, day: int = 0, topic: str = "ORDERS", group: str = "billing", **more: Any) -> dict[str, Any]:
    """One of the report's `statements`; `day`: of its window, after the 20th."""
    start_ms = START_MS + day * DAY_MS
    return {
        "file": f"statement/{topic}--{group}.json",
        "environment": "production",
        "topic": topic,
        "group": group,
        "start": f"day {day}",
        "end": f"day {day + 1}",
        "start_ms": start_ms,
        "end_ms": start_ms + DAY_MS,
        "zone": "UTC",
        "sequence": day + 1,
        "verdict": "clean",
        "keys": 1_200,
        "violations": 0,
        "classes": {"EFFECT_IN_TIME": 1_199, "EFFECT_LATE": 1, "LOST": 0},
        "signed_by": KEY,
        "signature_holds": True,
        "report_sha256": "00" * 32,
    } | more


def check(*statements: Mapping[str, Any], verdict: str = "verified", **more: Any) -> AuditCheck:
    """What the audit's command said of such statements."""
    report = {
        "verdict": verdict,
        "statements": list(statements),
        "differences": [],
        "more_differences": 0,
        "not_checked": ["the inputs: name the evidence with --evidence DIR to have them compared, too"],
        "no_answer": [],
        "files_equal": 8,
    }
    return check_of(report | more, at_ms=START_MS + 5 * DAY_MS)


def altered(*statements: Mapping[str, Any], message: str = "altered: its SHA-256 is not the signed one") -> AuditCheck:
    """With one file that is not as it was signed."""
    return check(
        *statements, verdict="differences", differences=[{"file": "result.json", "row": "/verdict", "message": message}]
    )


def folder_with(folder: Path, *names: str) -> tuple[Path, Path]:
    """The folder of audits, and the file of the key."""
    key = folder / "auditor.pem.pub"
    key.write_text("a key")
    audits = folder / "audits"
    for name in names:
        (audits / name / "statement").mkdir(parents=True)
        (audits / name / "statement" / "a.json").write_text("{}")
        (audits / name / "report.html").write_text("<h1>Report</h1>")
    return audits, key


def shelf_of(folder: Path, key: Path, verify: Callable[[str], AuditCheck], *, clock: Clock | None = None) -> AuditShelf:
    """Over a real folder; `verify` takes the name of an output."""
    return AuditShelf(
        str(folder),
        look=lambda: look_at(str(folder), str(key)),
        verify=lambda path: verify(Path(path).name),
        stop=lambda: None,
        clock=clock or SystemClock(),
    )


def known(shelf: AuditShelf, entries: Sequence[AuditEntry]) -> Sequence[AuditCheck]:
    """What the shelf tells of these, as soon as it waits for none of them."""
    eventually(
        lambda: all(one.state is not AuditState.WAITING for one in shelf.checks(entries)),
        within_seconds=60,
        message="every audit is known",
    )
    return shelf.checks(entries)


def known_shelf(folder: Path, checks: Mapping[str, AuditCheck]) -> AuditShelf:
    """All of them are known already."""
    shelf = shelf_of(*folder_with(folder, *checks), checks.__getitem__)
    known(shelf, shelf.look().entries)
    return shelf


def _hostile_audits() -> Mapping[str, AuditCheck]:
    text = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\x1b[2J\u202e'
    texts: dict[str, Any] = dict.fromkeys(
        ("file", "environment", "topic", "group", "start", "end", "zone", "verdict"), text * 100
    )
    many = [statement(**texts, signed_by=text * 100, signature_holds=False)] * 600
    times = statement(
        start_ms=-1, end_ms=2**53 - 1, keys=-1, violations=2**53 - 1, sequence=-1, zone="../../etc/passwd"
    )
    lines = [{"file": text * 100, "row": text * 100, "message": text * 100}] * 200
    return {
        "<img src=x onerror=alert(1)>\u202e": check(*many, verdict="differences", differences=lines),
        "%2e%2e\x1b": check(times, statement(end_ms=0), not_checked=[text * 100] * 200),
        "a?b#c": check(verdict="no answer", no_answer=[text * 100] * 200),
    }


#: What comes of hostile outputs, by their names.
HOSTILE_AUDITS = _hostile_audits()
