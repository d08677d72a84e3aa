"""State of a table that a session reads: an Iceberg table's snapshot or a Delta table's version.

Other tables have no state. Reading statements ask the session for the table's own metadata. If the metadata name no
state, the state is unknown. Then the table is read in the state of that time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DETAILS = "# Detailed Table Information"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """Rows of a table in one state, and the name of the state."""

    rows: DataFrame
    #: Name of the format in the catalogue, in small letters: iceberg, delta, parquet. None: no table, or an unknown
    #: format.
    format: str | None
    #: Snapshot or version. None: the format has no versions, the table was never written, or the version is not known.
    version: str | None


def read_table(spark: SparkSession, given: DataFrame | str) -> TableState:
    """Reads a DataFrame as it is, or reads the table or view of a name. Rows of a known state never show later writes.

    Spark can raise an error for unreadable rows in this call, or later, when the rows are read.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(given, str):
        return TableState(rows=given, format=None, version=None)
    rows = spark.table(given)
    kind: str | None = None
    with suppress(PySparkException, Py4JError):
        kind = _format(spark, given)
        version = _version(spark, given, kind)
        if version is not None:
            # A statement reads each name that `table` reads. An Iceberg snapshot has the columns of its time.
            then = spark.sql(f"SELECT * FROM {given} VERSION AS OF {version}")  # noqa: S608  # a table's own name
            if then.columns == rows.columns:
                return TableState(rows=then, format=kind, version=version)
    return TableState(rows=rows, format=kind, version=None)


def _format(spark: SparkSession, name: str) -> str | None:
    found = [(row[0], row[1]) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    names = [name for name, _ in found]
    details = dict(found[names.index(_DETAILS) :]) if _DETAILS in names else {}
    provider = details.get("Provider")
    return None if provider is None else str(provider).lower()


def _version(spark: SparkSession, name: str, kind: str | None) -> str | None:
    if kind == "delta":
        statement = f"DESCRIBE HISTORY {name} LIMIT 1"
    elif kind == "iceberg":
        whole_name = _whole_name(spark, name)
        statement = f"SELECT snapshot_id FROM {whole_name}.refs WHERE name = 'main'"  # noqa: S608  # likewise
    else:
        return None
    found = spark.sql(statement).collect()
    return str(found[0][0]) if found else None


def _whole_name(spark: SparkSession, name: str) -> str:
    """Adds catalogue and namespace to a name.

    Without them, Spark takes a name of one part before `.refs` for a namespace.
    """
    table = spark.catalog.getTable(name)
    parts = [part for part in (table.catalog, *(table.namespace or ()), table.name) if part is not None]
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)
