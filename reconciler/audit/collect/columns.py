"""Columns of a source as Arrow columns of the evidence. A whole column of texts makes no Python object per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.key_columns import Bytes, by_length, key_offsets
from reconciler.contract.schema import Column, Table
from reconciler.contract.unique_key import (
    DIGITS_BYTES_MAX,
    DIGITS_BYTES_MIN,
    TEXT_BYTES_MIN,
    UNIQUE_KEY_CHARACTERS_MAX,
    UNIQUE_KEY_CHARACTERS_MIN,
    UNIQUE_KEY_SHAPE,
    fault_of_member,
    is_unique_key,
    member_of,
)

_TYPES = {"key": pa.binary(), "name": pa.string(), "digest": pa.binary(), "bigint": pa.int64(), "integer": pa.int32()}

_NUMBERS = frozenset({"bigint", "integer"})

#: Value of each character of a key: the value of an upper-case hexadecimal digit, or one of these two marks.
_NO_DIGIT, _NO_CHARACTER = 16, 255
_KEY_VALUES = np.full(256, _NO_CHARACTER, np.uint8)
_KEY_VALUES[list(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-")] = _NO_DIGIT
_KEY_VALUES[list(b"0123456789ABCDEF")] = np.arange(16)


def schema_of(table: Table) -> pa.Schema:
    """Makes the Arrow schema of a table of the layout."""
    return pa.schema([pa.field(c.name, _TYPES[c.kind], nullable=c.nullable) for c in table.columns])


def key_bytes(value: object) -> bytes:
    """Converts a database's value to the member of a unique key. The value is the key's text or the member.

    Raises ValueError.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        if fault_of_member(data) is None:
            return data
        value = data.decode("ascii", "replace")  # a text column that the driver gives as bytes
    if not is_unique_key(value):
        raise ValueError(f"{value!r}"[:80] + f" is no unique key: expected {UNIQUE_KEY_SHAPE}, or its bytes")
    return member_of(value)


def members_of(keys: pa.Array) -> pa.Array:
    """Converts an array of texts as `key_bytes` does. Raises ValueError."""
    if keys.null_count:
        key_bytes(None)
    parts: list[tuple[npt.NDArray[np.intp], Bytes]] = []
    for rows, texts in by_length(keys):
        length = texts.shape[1]
        values = _KEY_VALUES[texts]
        is_key = UNIQUE_KEY_CHARACTERS_MIN <= length <= UNIQUE_KEY_CHARACTERS_MAX
        faults = np.flatnonzero((values == _NO_CHARACTER).any(axis=1)) if is_key else rows
        if len(faults):
            key_bytes(keys[int(rows[faults[0]] if is_key else faults[0])].as_py())
        spells = np.zeros(len(rows), np.bool_)
        if length % 2 == 0 and DIGITS_BYTES_MIN <= length // 2 <= DIGITS_BYTES_MAX:
            spells[:] = (values < _NO_DIGIT).all(axis=1)
            digits: Bytes = values[spells]
            parts.append((rows[spells], digits[:, 0::2] << np.uint8(4) | digits[:, 1::2]))
        members = np.zeros((len(rows) - int(spells.sum()), max(TEXT_BYTES_MIN, 1 + length)), np.uint8)
        members[:, 1 : 1 + length] = texts[~spells]
        parts.append((rows[~spells], members))
    return _binary(len(keys), parts)


def table_of(layout: Table, page: Sequence[Sequence[Any]], where: str) -> pa.Table:
    """Converts rows to Arrow. The columns have the layout's order. Keys may have any form.

    Raises AuditError("inputs").
    """
    try:
        return _table(layout, [list(column) for column in zip(*page, strict=True)], where)
    except (ValueError, TypeError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unfit(layout, where, error) from error


def table_of_csv(layout: Table, rows: bytearray, where: str) -> pa.Table:
    """Converts PostgreSQL's CSV to Arrow. An empty field is NULL, an empty text has quotes, digests are hexadecimal."""
    types = {c.name: _TYPES[c.kind] if c.kind in _NUMBERS else pa.string() for c in layout.columns}
    try:
        found = csv.read_csv(
            pa.BufferReader(rows),
            csv.ReadOptions(use_threads=False, block_size=len(rows) + 1, column_names=[*types]),
            csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        ).combine_chunks()
        columns = [found.column(c.name).combine_chunks() for c in layout.columns]
        return _table(layout, columns, where)
    except (ValueError, TypeError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unfit(layout, where, error) from error


def _table(layout: Table, columns: Sequence[Any], where: str) -> pa.Table:
    arrays = [_array(field, values) for field, values in zip(layout.columns, columns, strict=True)]
    return checked(pa.Table.from_arrays(arrays, schema=schema_of(layout)), layout, where)


def _unfit(layout: Table, where: str, error: Exception) -> AuditError:
    return AuditError("inputs", f"{where}: a row does not fit {layout.name}: {error}")


def checked(table: pa.Table, layout: Table, where: str) -> pa.Table:
    """Returns the table. Raises AuditError("inputs") for a NULL in a column that must have a value."""
    for column in layout.columns:
        if not column.nullable and table.column(column.name).null_count:
            raise AuditError("inputs", f"{where}: column {column.name} has NULLs; {layout.name} needs a value in it")
    return table


def _array(field: Column, values: Any) -> pa.Array:
    is_arrow = isinstance(values, pa.Array)
    if field.kind == "key":
        if is_arrow:
            return members_of(values)
        if all(type(value) is str for value in values):
            return members_of(pa.array(values, pa.string()))
        return pa.array([key_bytes(value) for value in values], pa.binary())
    if not is_arrow:
        return pa.array(values, _TYPES[field.kind])
    return _spelled(values) if field.kind == "digest" else values


def _spelled(texts: pa.Array) -> pa.Array:
    """Converts texts of digits to the bytes that they spell. NULL stays NULL."""
    found = bytes.fromhex(_data(texts).tobytes().decode("ascii"))
    offsets = key_offsets(texts) // 2
    valid = texts.is_valid().buffers()[1] if texts.null_count else None
    buffers = [valid, _offsets(offsets - offsets[0]), pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)


def _data(texts: pa.Array) -> Bytes:
    """Views the bytes of all texts as one array."""
    buffer, offsets = texts.buffers()[2], key_offsets(texts)
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]


def _offsets(offsets: npt.NDArray[np.int64]) -> pa.Buffer:
    return pa.py_buffer(offsets.astype(np.int32))


def _binary(count: int, parts: Sequence[tuple[npt.NDArray[np.intp], Bytes]]) -> pa.Array:
    """Joins parts into one array. Each part has places, and values that share one length."""
    lengths = np.zeros(count, np.int64)
    for rows, values in parts:
        lengths[rows] = values.shape[1]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    whole = [values for rows, values in parts if len(rows) == count]
    if whole:
        data = np.ascontiguousarray(whole[0])
    else:
        data = np.empty(int(offsets[-1]), np.uint8)
        for rows, values in parts:
            data[offsets[rows][:, None] + np.arange(values.shape[1])] = values
    return pa.Array.from_buffers(pa.binary(), count, [None, _offsets(offsets), pa.py_buffer(data)])
