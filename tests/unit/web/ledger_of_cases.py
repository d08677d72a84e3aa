"""A ledger in SQLite with a row of every kind that pages and documents show, each a minute older than the last."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reconciler.contract.tables import CandidateState, HoldKind, JobKind, JobState, RepairState, Rung
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.sql.engines import open_engine, writing
from reconciler.sql.tables import (
    candidate,
    floor,
    hold,
    job,
    ledger_metadata,
    operator_action,
    outage,
    quarantine,
    repair,
    round_row,
)

#: That of config/reconciler.toml.
ENVIRONMENT, TOPIC, GROUP = "production", "ORDERS", "billing"
NEWEST_MS = 1_800_000_000_000
MINUTE_MS = 60_000
#: Markup, a cursor that moves, and text turned round, as a stranger may have brought it into a name or a text.
HOSTILE = "<script>alert(1)</script>&\"'\x1b[2J\u202e"


def key(number: int) -> str:
    """Of the candidate and repair with this number."""
    return f"{number:032X}"


def make_ledger(folder: Path) -> str:
    """Writes the ledger; returns its URL."""
    url = f"sqlite:///{folder}/ledger.db"
    rows = {table: [{"environment": ENVIRONMENT} | row for row in rows] for table, rows in _ROWS.items()}
    write_database(url, ledger_metadata, rows)
    return url


def write_database(url: str, metadata: sa.MetaData, rows: Mapping[sa.Table, list[dict[str, Any]]]) -> None:
    """All tables of the metadata, and these rows in them: at least one of each table that is named."""
    engine = open_engine(url)
    metadata.create_all(engine)
    with writing(engine) as connection:
        for table, values in rows.items():
            connection.execute(sa.insert(table), values)
    engine.dispose()


def _at_ms(number: int) -> int:
    return NEWEST_MS - number * MINUTE_MS


def _candidates() -> Iterable[dict[str, Any]]:
    """Every verdict in every state, of one group and, with other keys, of a topic that is not configured."""
    for number, (verdict, state) in enumerate(product(Verdict, CandidateState)):
        yield {
            "topic": TOPIC if number % 5 else "RETIRED",
            "consumer_group": GROUP,
            "unique_key": key(number),
            "shard": number % 16,
            "state": state,
            "verdict": verdict,
            "loss_verdict": verdict if verdict in LOSSES else None,
            "evidence": json.dumps({"reason": HOSTILE, "outbox": "FOUND"}),
            "attempts": number % 4,
            "first_seen_ms": _at_ms(number),
            "next_at_ms": _at_ms(number) + MINUTE_MS,
            "updated_at_ms": _at_ms(number) + 1_000,
        }


def _repairs() -> Iterable[dict[str, Any]]:
    for number, (state, rung) in enumerate(product(RepairState, Rung)):
        yield {
            "topic": TOPIC,
            "scope": GROUP if rung is Rung.HAND_OVER else "*",
            "unique_key": key(number),
            "state": state,
            "rung": rung,
            "attempts": number % 3,
            "next_at_ms": _at_ms(number),
            "answer": (None, HOSTILE, f"dismissed by ann: {HOSTILE}")[number % 3],
            "created_at_ms": _at_ms(number),
            "done_at_ms": _at_ms(number) + 5_000 if state is RepairState.DONE else None,
        }


def _rounds() -> Iterable[dict[str, Any]]:
    for number in range(40):
        yield {
            "topic": TOPIC,
            "consumer_group": GROUP,
            "shard": number % 16,
            "epoch": f"{ENVIRONMENT}:first",
            "generation": 1_000 - number,
            "at_ms": _at_ms(number),
            "offsets": json.dumps({f"broker-a/{number % 16}": number}),
            "announced": 10,
            "matched": 8,
            "pending_before": 1,
            "pending_added": 2,
            "pending_matched": 1,
            "pending_after": 2,
            "void": int(number == 3),
            "stored_at_ms": _at_ms(number) + 20,
        }


def _outages() -> Iterable[dict[str, Any]]:
    left_out = {"complete": True, "left_out": {"ORDERS/billing": HOSTILE}}
    for number, reason in enumerate(("AWAY", "MEMORY_LOST", "UNSAFE")):
        yield {
            "started_at_ms": _at_ms(number * 60),
            "reason": reason,
            "noticed_by": "run@host",
            "scan_position": json.dumps(left_out) if number else None,
            "scanned": number * 1_000,
            "closed_at_ms": _at_ms(number * 60) + MINUTE_MS if number else None,
        }


def _refused() -> Iterable[dict[str, Any]]:
    for number, reason in enumerate(("MALFORMED", "VERSION", "ENVIRONMENT", "TOPIC", "SIGNATURE", "SIZE", "SHAPE")):
        yield {
            "unique_key_topic": "RECONCILER_UNIQUE_KEY",
            "broker": "broker-a",
            "queue_id": number,
            "queue_offset": 100 + number,
            "reason": reason,
            "detail": HOSTILE,
            "body": HOSTILE.encode(),
            "seen_at_ms": _at_ms(number),
        }


def _actions() -> Iterable[dict[str, Any]]:
    for number, command in enumerate(("hold", "resume", "repair", "dismiss", "rebuild")):
        yield {
            "action_id": f"{number:032x}",
            "by": "web:ada" if number % 2 else "operator ben",
            "command": command,
            "topic": TOPIC,
            "consumer_group": None if number % 2 else GROUP,
            "unique_key": key(number) if command in ("repair", "dismiss") else None,
            "detail": HOSTILE,
            "started_at_ms": _at_ms(number),
            "ended_at_ms": _at_ms(number) + 1_000 if number else None,
            "result": "done" if number else None,
        }


def _jobs() -> Iterable[dict[str, Any]]:
    line = {"unique_key": key(1), "topic": TOPIC, "group": GROUP, "outcome": "failed", "reason": HOSTILE}
    for number, (kind, state) in enumerate(product(JobKind, JobState)):
        is_repair = kind is JobKind.REPAIR
        request = {"unique_keys": [key(1)], "topic": TOPIC} if is_repair else {"since_ms": 1}
        yield {
            "job_id": f"{number:032x}",
            "kind": kind,
            "request": json.dumps(request | {"reason": HOSTILE}),
            "by": "web:ada" if number % 2 else "operator ben",
            "state": state,
            "attempts": 1,
            "done": 3,
            "total": 4 if is_repair else None,
            "counts": json.dumps({"sent": 2, "failed": 1}) if is_repair else None,
            "lines": json.dumps({"lines": [line]}) if is_repair else None,
            "error": HOSTILE if state is JobState.FAILED else None,
            "cancelled_by": "web:ada" if state is JobState.CANCELLED else None,
            "created_at_ms": _at_ms(number),
            "started_at_ms": None if state is JobState.QUEUED else _at_ms(number) + 10,
            "ended_at_ms": None if state in (JobState.QUEUED, JobState.RUNNING) else _at_ms(number) + 1_000,
        }


_HOLDS = [
    {"topic": TOPIC, "kind": kind, "since_ms": _at_ms(number), "by": "operator ben", "reason": HOSTILE}
    for number, kind in enumerate(HoldKind)
]
_FLOORS = [
    {
        "topic": TOPIC,
        "consumer_group": GROUP,
        "broker": "broker-a",
        "queue_id": number,
        "queue_offset": 10 * number,
        "updated_at_ms": _at_ms(number),
    }
    for number in range(4)
]
_ROWS = {
    candidate: list(_candidates()),
    repair: list(_repairs()),
    round_row: list(_rounds()),
    outage: list(_outages()),
    quarantine: list(_refused()),
    operator_action: list(_actions()),
    job: list(_jobs()),
    hold: _HOLDS,
    floor: _FLOORS,
}
#: Listing -> how many rows it has.
COUNTS = {
    "candidates": len(_ROWS[candidate]),
    "repairs": len(_ROWS[repair]),
    "rounds": len(_ROWS[round_row]),
    "outages": len(_ROWS[outage]),
    "quarantine": len(_ROWS[quarantine]),
    "actions": len(_ROWS[operator_action]),
    "jobs": len(_ROWS[job]),
}
