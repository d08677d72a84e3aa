"""DuckDB's answer: the statement of audit_sql.py over the same files, in this process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.audit_sql import VIEWS, Counts, read_evidence, statement, subscriptions, taken_tags


class DuckDbAudit:
    """A connection with views over one evidence folder; `count` can be called again and again."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        evidence = read_evidence(folder)
        window = evidence["window"]
        self._statement = statement(window["start_ms"], window["end_ms"], evidence["skew_bound_ms"])
        # What does not fit into memory goes to the system's folder, not into the one people stand in.
        self._connection = duckdb.connect(config={"threads": threads, "temp_directory": tempfile.gettempdir()})
        self._connection.execute("SET preserve_insertion_order = false")
        for place, view in VIEWS.items():
            files = f"read_parquet('{folder / place}/**/*.parquet', hive_partitioning = false)"
            self._connection.execute(f'CREATE VIEW "{view}" AS SELECT * FROM {files}')
        self._connection.execute(
            "CREATE TABLE subscription (sid INT, topic TEXT, consumer_group TEXT, grace_ms BIGINT, late_ms BIGINT, "
            "every_tag BOOLEAN, outboxes_complete BOOLEAN)"
        )
        self._connection.executemany("INSERT INTO subscription VALUES (?, ?, ?, ?, ?, ?, ?)", subscriptions(evidence))
        self._connection.execute("CREATE TABLE taken (sid INT, tag TEXT)")
        tags = taken_tags(evidence)
        if tags:
            self._connection.executemany("INSERT INTO taken VALUES (?, ?)", tags)

    def count(self) -> Counts:
        """Runs the statement."""
        return {(sid, name): keys for sid, name, keys in self._connection.execute(self._statement).fetchall()}

    def replace(self, view: str, rows: Any) -> None:
        """An Arrow table in place of a view of files."""
        self._connection.register("given", rows)
        self._connection.execute(f'DROP VIEW "{view}"')
        self._connection.execute(f'CREATE TABLE "{view}" AS SELECT * FROM given')

    def insert(self, view: str, rows: Any) -> None:
        """More rows of a replaced view."""
        self._connection.register("given", rows)
        self._connection.execute(f'INSERT INTO "{view}" SELECT * FROM given')

    def close(self) -> None:
        """Gives the memory back."""
        self._connection.close()
