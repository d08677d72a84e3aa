"""The tables of `--tables` as a reader sees them, and days of a small shop whose audits write them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb

from reconciler.audit.command import main
from reconciler.audit.judged_tables.schema import COLUMNS, RUNS
from tests.audit.small_evidence import GROUP, START_MS, SmallEvidence, subscription

DAY_MS = 86_400_000
_RUN = re.compile(r"_\d{8}T\d{9}Z-[0-9a-f]{8}")
#: What another run of the same evidence has otherwise.
OF_RUN = {"run", "started_at", "statement_sha256", "release"}


def connected(tables: Path) -> duckdb.DuckDBPyConnection:
    """The tables as views; rows of runs that are not valid are not in them, as the page says."""
    connection = duckdb.connect(config={"threads": 2})
    for table in (RUNS, *(table for table in COLUMNS if table != RUNS)):
        rows = f"read_parquet('{tables}/{table}/*.parquet', union_by_name = true)"
        valid = "" if table == RUNS else f"JOIN {RUNS} USING (run, topic, consumer_group)"
        connection.execute(f"CREATE VIEW {table} AS SELECT found.* FROM {rows} AS found {valid}")
    return connection


def rows_of(tables: Path) -> dict[str, list[dict[str, Any]]]:
    """All valid rows of each table, in one order, without what names the run."""
    found: dict[str, list[dict[str, Any]]] = {}
    with connected(tables) as connection:
        for table, columns in COLUMNS.items():
            names = [column.name for column in columns if column.name not in OF_RUN]
            selected = ", ".join(f'"{name}"' for name in names)
            rows = connection.execute(f"SELECT {selected} FROM {table} ORDER BY ALL").fetchall()
            found[table] = [dict(zip(names, row, strict=True)) for row in rows]
    return found


def names_of(tables: Path) -> list[str]:
    """Every file and folder, without the part of a name that is the run's."""
    names = [path.relative_to(tables).as_posix() for path in tables.rglob("*")]
    return sorted(_RUN.sub("_RUN", name) for name in names)


def day(number: int, groups: tuple[str, ...] = (GROUP,), length_ms: int = DAY_MS) -> SmallEvidence:
    """One day, or another window: messages that took effect after 1 to 10 seconds, one that was lost, one that was
    repaired."""
    start_ms = START_MS + number * length_ms
    evidence = SmallEvidence(
        subscriptions=[subscription(group=group, effects=False) for group in groups],
        has_history=False,
        start_ms=start_ms,
        end_ms=start_ms + length_ms,
        as_of_ms=start_ms + 2 * DAY_MS,
        collected_at_ms=start_ms + 2 * DAY_MS,
    )
    for message in range(12):
        key = bytes([number, message]) * 8
        created_at_ms = start_ms + message * length_ms // 24
        evidence.add("outbox", key, created_at_ms=created_at_ms, business_id=f"order-{number}-{message}")
        for group in groups:
            seen = {"consumer_group": group, "first_seen_ms": created_at_ms + 40_000}
            if message == 10:
                evidence.add("candidate", key, **seen, verdict="PARKED", loss_verdict="PARKED")
                continue
            applied_at_ms = created_at_ms + 1_000 * (message + 1)
            if message == 11:
                applied_at_ms = created_at_ms + 95_000
                evidence.add("candidate", key, **seen, state="SETTLED", loss_verdict="LOST_CONFIRM")
                evidence.add("repair", key, scope=group, created_at_ms=created_at_ms + 90_000)
            evidence.add("inbox", key, consumer_group=group, applied_at_ms=applied_at_ms)
    return evidence


def audit(evidence: Path, tables: Path) -> int:
    """One audit of a folder that was collected, into the tables."""
    out = tables.parent / f"{evidence.name}-out"
    return main(["audit", "--engine", "here", "--evidence", str(evidence), "--out", str(out), "--tables", str(tables)])
