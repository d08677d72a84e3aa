"""Databases exported as real Delta tables, the outbox in several commits, some of which took rows back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import sqlalchemy as sa

from tests.audit.audited_databases import Databases
from tests.engines import disposed

LEDGER_TABLES = ("reconciler_candidate", "reconciler_repair", "reconciler_round")


def write_exports(databases: Databases, folder: Path) -> None:
    """Tables `outbox` and `inbox`, and the ledger's below `ledger`."""
    outbox = rows_of(databases.outbox_url, "reconciler_outbox")
    half = len(outbox) // 2
    phantoms = [{**row, "unique_key": "EE" * 15 + f"{number:02X}"} for number, row in enumerate(outbox[:20])]
    _write(folder / "outbox", outbox[:half], by=["topic", "state"])
    _write(folder / "outbox", phantoms)
    _write(folder / "outbox", outbox[half:])
    table = deltalake.DeltaTable(str(folder / "outbox"))
    table.delete("unique_key LIKE 'EEEE%'")
    table.optimize.compact()
    _write(folder / "inbox", rows_of(databases.inbox_url, "reconciler_inbox"), by=["consumer_group"])
    for name in LEDGER_TABLES:
        _write(folder / "ledger" / name, rows_of(databases.ledger_url, name))


def write_effects(databases: Databases, place: Path, topic: str, group: str) -> None:
    """One subscription's effects, one row each, as a table of keys and counts."""
    rows = rows_of(databases.inbox_url, "payments")
    mine = [row["message_key"] for row in rows if (row["topic"], row["consumer_group"]) == (topic, group)]
    _write(place, [{"key": key, "effects": mine.count(key)} for key in sorted(set(mine))])


def rows_of(url: str, table: str) -> list[dict[str, Any]]:
    """A whole table."""
    with disposed(sa.create_engine(url)) as engine, engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.text(f"SELECT * FROM {table}")).mappings()]


def _write(place: Path, rows: Sequence[dict[str, Any]], *, by: Sequence[str] = ()) -> None:
    table = pa.Table.from_pylist(list(rows))
    for number, field in enumerate(table.schema):  # Delta has no columns without a type
        if pa.types.is_null(field.type):
            table = table.set_column(number, field.name, pa.nulls(table.num_rows, pa.string()))
    options: dict[str, Any] = {"mode": "append", "partition_by": list(by) or None}
    deltalake.write_deltalake(str(place), table, **options)
