"""The judge that was written from the docs, in DuckDB: its tables from a folder of evidence, its answer from SQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from reconciler.contract.evidence_layout import EVIDENCE_TABLES
from reconciler.contract.history_row import ANNOUNCED, CONSUMED, LEFT, PENDING, ROUND, SNAPSHOT
from reconciler.contract.schema import Table

SQL = Path(__file__).with_name("judge_from_docs.sql")
#: Types of DuckDB by the kinds of the contract; all others are text.
_TYPES = {"key": "BLOB", "digest": "BLOB", "bigint": "BIGINT", "integer": "INTEGER"}


def judge(folder: Path, sql: str | None = None) -> duckdb.DuckDBPyConnection:
    """A connection whose table `judged` has every key of the window, by topic and group, with its class."""
    evidence = json.loads((folder / "evidence.json").read_bytes())
    connection = duckdb.connect(config={"threads": 2, "memory_limit": "3GB"})
    _load_questions(connection, evidence)
    files = [name for name in evidence["files"] if not name.startswith("ledger_round/")]
    for table in EVIDENCE_TABLES:
        _load(connection, table, [str(folder / name) for name in files if name.startswith(f"{table.name}/")])
    streams = _listed(folder / evidence["history"], evidence["environment"]) if evidence["history"] else {}
    for stream in (ANNOUNCED, CONSUMED, LEFT, PENDING, SNAPSHOT, ROUND):
        _load(connection, stream, [path for path, name in streams.items() if name == stream.name])
    connection.execute(SQL.read_text() if sql is None else sql)
    return connection


def _load_questions(connection: duckdb.DuckDBPyConnection, evidence: Mapping[str, Any]) -> None:
    connection.execute(
        "CREATE TEMP TABLE the_window AS SELECT $start::BIGINT AS start_ms, $end::BIGINT AS end_ms,"
        " $read::BIGINT AS read_ms, $skew::BIGINT AS skew_ms, $history::BOOLEAN AS history, $ledger::BOOLEAN AS ledger",
        {
            "start": evidence["window"]["start_ms"],
            "end": evidence["window"]["end_ms"],
            "read": evidence["collected_at_ms"],
            "skew": evidence["skew_bound_ms"],
            "history": evidence["history"] is not None,
            "ledger": evidence["ledger"],
        },
    )
    connection.execute(
        'CREATE TEMP TABLE asked (topic TEXT, "group" TEXT, tags TEXT[], grace_ms BIGINT,'
        " late_ms BIGINT, outboxes BOOLEAN)"
    )
    connection.executemany(
        "INSERT INTO asked VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                *(asked["topic"], asked["group"], asked["tags"]),
                *(round(1_000 * asked[name]) for name in ("grace_period_seconds", "late_after_seconds")),
                set(asked["producer_groups"]) <= set(evidence["outboxes"]),
            )
            for asked in evidence["subscriptions"]
        ],
    )


def _load(connection: duckdb.DuckDBPyConnection, table: Table, paths: Iterable[str]) -> None:
    """A table with the columns of the contract; those that the files lack are NULL."""
    columns = ", ".join(f'"{column.name}" {_TYPES.get(column.kind, "TEXT")}' for column in table.columns)
    connection.execute(f'CREATE TEMP TABLE "{table.name}" ({columns})')
    if files := list(paths):
        rows = "SELECT * FROM read_parquet(?, union_by_name = true, hive_partitioning = false)"
        connection.execute(f'INSERT INTO "{table.name}" BY NAME {rows}', [files])


def _listed(history: Path, environment: str) -> dict[str, str]:
    """Path and stream of the files that the manifest lists: those added and not removed by later entries."""
    files: dict[str, str] = {}
    for entry in sorted((history / "manifest" / f"environment={environment}").glob("*.json")):
        read = json.loads(entry.read_bytes())
        for path in read["removed"]:
            files.pop(path, None)
        files.update({file["path"]: file["stream"] for file in read["added"]})
    return {str(history / path): stream for path, stream in files.items()}
