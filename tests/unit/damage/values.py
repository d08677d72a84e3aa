"""Values that break their columns: what SQLite stores in any of them, and what any database stores in a text."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.contract.schema import Column, Table

#: A text that is no UTF-8: SQLite's driver refuses the whole answer for it, unless it is told otherwise.
NO_UTF8 = object()


def damaged_values(column: Column) -> Iterator[tuple[str, Any]]:
    """Values that are none of this column's, with their names."""
    if column.kind != "bytes":  # there it is read as the bytes that it is
        yield "a text that is no UTF-8", NO_UTF8
    match column.kind:
        case "integer" | "bigint":
            yield from (("bytes", b"\x00\xff"), ("text", "soon"), ("a fraction", 1.5), ("too large", 1e300))
        case "bytes":
            yield from (("text", "body"), ("a number", 5))
            return
        case "digest":
            yield from (("text", "x" * 32), ("a number", 5), ("too short", b"x" * 31))
            return
        case _:
            yield "bytes", b"\x00\xff"
    if column.words:
        yield from (("an unknown word", "PARKED_BY_A_LATER_RELEASE"), ("an empty word", ""), ("a line end", "NEW\n"))
    if column.members:
        yield from (("no JSON", "{"), ("a JSON list", "[1]"), ("deep JSON", "[" * 100_000))
    if column.members in ("text", "number"):
        yield "JSON of another shape", '{"a":{"b":1}}'
    if column.kind in ("name", "key", "short"):
        yield "too long", "x" * 1_000


def cases(*tables: Table, without: Mapping[str, tuple[str, ...]]) -> list[Any]:
    """One parameter set (table, column, value) a damaged value; columns that tell whose row it is are left out."""
    return [
        pytest.param(table, column, value, id=f"{table.name.removeprefix('reconciler_')}.{column.name}: {what}")
        for table in tables
        for column in table.columns
        if column.name not in without.get(table.name, ())
        for what, value in damaged_values(column)
    ]


def damage(path: Path, table: Table, column: Column, value: Any, *, where: str, arguments: tuple[Any, ...]) -> None:
    """Writes the value into the column of one row, as any other program could."""
    marker = "CAST(X'53ff' AS TEXT)" if value is NO_UTF8 else "?"
    given = () if value is NO_UTF8 else (value,)
    with sqlite3.connect(path) as connection:
        update = f'UPDATE {table.name} SET "{column.name}" = {marker} WHERE {where}'  # names of ours
        assert connection.execute(update, given + arguments).rowcount >= 1
    connection.close()
