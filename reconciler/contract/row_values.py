"""Checks the values of a row against their columns, and replaces damaged values by harmless ones.

SQLite stores any type in any column, a person may write by hand, and a later release may know more words. A damaged
value must not stop the rows beside it. So a row is read value by value: a damaged value is named, and a harmless value
takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.contract.schema import Column, Table
from reconciler.contract.unique_key import UNIQUE_KEY_SHAPE, is_unique_key

#: Maximum number of characters of a text of this kind. Texts of other kinds are unbounded.
_CHARACTERS_MAX = {"key": 64, "name": 160, "short": 32}
_TEXTS = frozenset({"key", "name", "short", "text", "json"})
_NUMBERS = frozenset({"integer", "bigint"})
_DIGEST_BYTES = 32
#: Maximum number of characters of a damaged value that a message shows.
_SHOWN_CHARACTERS = 40


def characters_max(column: Column) -> int | None:
    """Returns the number of characters of the longest text in the column. None: the column has no limit."""
    return _CHARACTERS_MAX.get(column.kind)


def text_or_bytes(stored: bytes) -> str | bytes:
    """Returns the text, or the stored bytes if they are no UTF-8. A driver would refuse the whole answer for one such
    value."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A row whose values are safe to work with."""

    #: Column -> value. JSON values are parsed, and binary values have the type bytes. A damaged value is replaced by
    #: None, 0, "", or the reader's `otherwise`.
    values: dict[str, Any]
    #: Table, column and defect of each damaged value. None: no value of the row is damaged.
    damage: str | None
    #: Names of the damaged columns.
    damaged: frozenset[str] = frozenset()


class RowReader:
    """Reads rows of some columns of one table. Immutable."""

    def __init__(
        self, table: Table, names: Iterable[str] | None = None, *, otherwise: Mapping[str, object] | None = None
    ) -> None:
        """`names`: columns in the order of the rows' values. None: all columns. `otherwise` replaces damaged values."""
        columns = {column.name: column for column in table.columns}
        self._table = table.name
        self._columns = tuple(columns[name] for name in (columns if names is None else names))
        self._otherwise = dict(otherwise or {})

    def parse(self, row: Sequence[Any]) -> ReadRow:
        """Returns the values and the damage. Raises nothing, whatever the row contains."""
        values: dict[str, Any] = {}
        faults: dict[str, str] = {}
        for column, value in zip(self._columns, row, strict=True):
            try:
                values[column.name] = _value(column, value)
            except _Damaged as error:
                faults[column.name] = f"{self._table}.{column.name} {error}"
                values[column.name] = self._otherwise.get(column.name, _harmless(column))
        return ReadRow(values, "; ".join(faults.values()) if faults else None, frozenset(faults))


class _Damaged(Exception):
    """Says which defect a value has."""


def _harmless(column: Column) -> object:
    if column.nullable:
        return None
    if column.kind == "json":
        return {}
    if column.kind in _NUMBERS:
        return 0
    return "" if column.kind in _TEXTS else b""


def _value(column: Column, value: Any) -> Any:
    if value is None:
        if column.nullable:
            return None
        raise _Damaged("is NULL")
    if column.kind in _NUMBERS:
        if type(value) is not int:
            raise _Damaged(f"is {_shown(value)}: expected a whole number")
        return value
    if column.kind not in _TEXTS:
        return _bytes(column, value)
    if type(value) is not str:
        raise _Damaged(f"is {_shown(value)}: expected text")
    if len(value) > _CHARACTERS_MAX.get(column.kind, len(value)):
        raise _Damaged(f"has {len(value)} characters: expected at most {_CHARACTERS_MAX[column.kind]}")
    if column.words and value not in column.words:
        raise _Damaged(f"is {_shown(value)}: expected one of {', '.join(column.words)}")
    if column.name == "unique_key" and not is_unique_key(value):
        raise _Damaged(f"is {_shown(value)}: expected {UNIQUE_KEY_SHAPE}")
    return _object(column, value) if column.kind == "json" and column.members is not None else value


def _bytes(column: Column, value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _Damaged(f"is of type {type(value).__name__}: expected bytes")
    if column.kind == "digest" and len(value) != _DIGEST_BYTES:
        raise _Damaged(f"has {len(value)} bytes: expected {_DIGEST_BYTES}")
    return bytes(value)


def _object(column: Column, text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"is no JSON: {str(error)[:80]}") from error
    kinds = {"text": str, "number": int}
    if not isinstance(found, dict) or (
        column.members in kinds and any(type(member) is not kinds[column.members] for member in found.values())
    ):
        raise _Damaged(f"is JSON of another shape: expected an object with members of kind {column.members}")
    return found


def _shown(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
