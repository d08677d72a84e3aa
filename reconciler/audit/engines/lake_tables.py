"""Puts the judged tables of a folder into Iceberg or Delta tables of a catalogue.

The caller's session writes the tables. Rows of a new run lie beside the rows of older runs, as in the folder. Older
runs stay valid until one commit replaces their rows of audit_runs by the new run's rows. Replaced rows are deleted
afterwards. Conditions on partition columns name the rows to delete, so a file holds one run of one window.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reconciler.audit.engines.spark_errors import spark_errors
from reconciler.audit.engines.spark_progress import is_connect
from reconciler.audit.errors import AuditError
from reconciler.audit.judged_tables.schema import COUNTS, FINDINGS, KEYS, RUNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TableFormat = Literal["iceberg", "delta"]

_WINDOW = ("environment", "window_start", "window_end", "topic", "consumer_group")
_OF_KEYS = (KEYS, FINDINGS, COUNTS)
#: Options that keep the rows in the form that tasks have written: one file per subscription, neither sorted nor moved.
_AS_WRITTEN = {"distribution-mode": "none", "fanout-enabled": "true"}
_ANOTHER = "checkback: another run is valid"
#: Messages of Iceberg and Delta about two commits that touch the same window.
_CONFLICT = re.compile(rf"{_ANOTHER}|conflicting files|conflicting delete|Concurrent\w+Exception|DELTA_CONCURRENT")


def require_merge(spark: SparkSession) -> None:
    """Raises AuditError("configuration") if DataFrames of the session's PySpark have no MERGE."""
    if not hasattr(spark.range(0), "mergeInto"):
        raise AuditError(
            "configuration",
            f"PySpark {import_module('pyspark').__version__}: its DataFrames have no mergeInto, by which a run becomes "
            "valid in one commit; load the tables with PySpark 4.0 or newer",
        )


def load_run(spark: SparkSession, folder: Path, run: str, *, into: str, kind: TableFormat) -> None:
    """Puts the rows of one run in `folder` (--tables) into the tables of the schema `into`.

    Raises AuditError("inputs") if the folder lacks the run. Raises AuditError("engine") if another run of the window
    became valid after this run began.
    """
    with spark_errors():
        _Load(spark, folder, run, into, kind).run()


class _Load:
    def __init__(self, spark: SparkSession, folder: Path, run: str, into: str, kind: TableFormat) -> None:
        self._spark = spark
        # PySpark has other functions for each kind of session.
        self._functions: Any = import_module(f"pyspark.sql.{'connect.' if is_connect(spark) else ''}functions")
        self._run = run
        self._kind = kind
        self._names = {table: f"{into}.{table}" for table in (*_OF_KEYS, RUNS)}
        self._rows = {RUNS: self._read(folder, RUNS)}
        self._found = self._subscriptions()
        self._rows.update((table, self._read(folder, table)) for table in _OF_KEYS)

    def run(self) -> None:
        window = self._window()
        for table in self._names:
            self._ready(table)
        # Runs that began before this run. If such a run becomes valid meanwhile, this run does not become valid.
        older = {table: self._runs_in(table, window) - {self._run} for table in self._names}
        for table in _OF_KEYS:
            self._replace(table, self._rows[table], window & (self._column("run") == self._text(self._run)))
        self._make_valid({self._run, *older[RUNS]})
        for table in _OF_KEYS:
            if older[table]:
                gone = window & self._column("run").isin(sorted(older[table]))
                self._replace(table, self._rows[table].limit(0), gone)

    def _column(self, name: str) -> Column:
        column: Column = self._functions.col(name)
        return column

    def _text(self, value: object) -> Column:
        literal: Column = self._functions.lit(value)
        return literal

    def _read(self, folder: Path, table: str) -> DataFrame:
        reader = self._spark.read.option("mergeSchema", "true")
        if table != RUNS:  # a file of RUNS belongs to a window, any other file to a run
            reader = reader.option("pathGlobFilter", f"*_{self._run}_*.parquet")
        return reader.parquet(str(folder / table)).where(self._column("run") == self._text(self._run))

    def _subscriptions(self) -> list[dict[str, Any]]:
        """Reads the values of _WINDOW for the window and each subscription of the run."""
        times = [self._functions.unix_micros(name).alias(name) for name in ("window_start", "window_end")]
        found = self._rows[RUNS].select("environment", *times, "topic", "consumer_group").collect()
        if not found:
            raise AuditError("inputs", f"the tables have no run {self._run}; another audit of its window replaced it")
        return [
            {**row.asDict(), **{name: _instant(row[name]) for name in ("window_start", "window_end")}} for row in found
        ]

    def _window(self, table: str = "") -> Column:
        """Makes the condition for window and subscriptions of the run.

        A file has one value of each column in the condition.
        """

        def equal(subscription: Mapping[str, Any]) -> Column:
            each = [self._column(f"{table}{name}") == self._text(subscription[name]) for name in _WINDOW]
            return reduce(lambda both, other: both & other, each)

        return reduce(lambda either, other: either | other, map(equal, self._found))

    def _ready(self, table: str) -> None:
        """Creates the table with all columns.

        If a later release has added columns to the table, the rows get these columns empty.
        """
        name, rows = self._names[table], self._rows[table]
        partitions = _WINDOW if table == RUNS else (*_WINDOW, "run")
        if not self._spark.catalog.tableExists(name):
            rows.limit(0).writeTo(name).using(self._kind).partitionedBy(*map(self._column, partitions)).create()
        self._spark.catalog.refreshTable(name)  # another session may have written the table
        there = self._spark.table(name).schema.fields
        missing = set(rows.columns) - {field.name for field in there}
        added = [f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema if field.name in missing]
        if added:
            self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(added)})")
        for field in there:
            if field.name not in rows.columns:
                rows = rows.withColumn(field.name, self._text(None).cast(field.dataType))
        self._rows[table] = rows

    def _runs_in(self, table: str, window: Column) -> set[str]:
        found = self._spark.table(self._names[table]).where(window).select("run").distinct().collect()
        return {row["run"] for row in found}

    def _replace(self, table: str, rows: DataFrame, replaced: Column) -> None:
        writer = rows.writeTo(self._names[table])
        (writer.options(**_AS_WRITTEN) if self._kind == "iceberg" else writer).overwrite(replaced)

    def _make_valid(self, known: set[str]) -> None:
        """Makes the run valid in one commit. The commit fails if a run outside of `known` has rows or adds rows."""
        target, rows = RUNS, self._rows[RUNS].alias("found")
        own = [self._column(f"{target}.{name}") == self._column(f"found.{name}") for name in _WINDOW]
        # The condition repeats the values, so that a commit for another window is no conflict.
        merged = rows.mergeInto(
            self._names[RUNS], reduce(lambda both, other: both & other, own, self._window(f"{target}."))
        )
        refused = self._functions.raise_error(self._text(_ANOTHER)).cast("string")
        merged = merged.whenMatched(self._column(f"{target}.run").isin(sorted(known))).updateAll()
        merged = merged.whenMatched().update({"run": refused}).whenNotMatched().insertAll()
        try:
            merged.merge()
        except Exception as error:
            if _CONFLICT.search(str(error)):
                raise AuditError(
                    "engine",
                    f"{self._names[RUNS]}: another run of the window became valid while run {self._run} was loaded; "
                    "its rows stay, and those of this run are not seen",
                ) from error
            raise


def _instant(microseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=microseconds)
