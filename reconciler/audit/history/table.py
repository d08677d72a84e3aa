"""Reads one file of a history as an Arrow table. The bytes must be those that the manifest names.

The columns are the contract's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as arrow_fs

from reconciler.audit.places import bytes_at
from reconciler.contract.history_row import SnapshotKind
from reconciler.contract.manifest import HistoryFile
from reconciler.contract.schema import Column, Table

_TYPES = {
    "key": pa.binary(),
    "name": pa.string(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
}


def read_stream_file(
    filesystem: arrow_fs.FileSystem, base: str, file: HistoryFile, stream: Table, problems: list[str]
) -> pa.Table | None:
    """Reads all columns of the stream. Returns None and adds to `problems` if the file cannot be trusted."""
    data = _read(filesystem, base, file, problems)
    return None if data is None else stream_table(data, file, stream, problems)


def rests_by_round(snapshots: pa.Table) -> Iterator[tuple[tuple[str, str, int, str], int, int, int]]:
    """Groups rows AT_REST of the stream `snapshot` by topic, group, shard, epoch and generation.

    Each group has its first and last time.
    """
    rests = snapshots.filter(pc.equal(snapshots["kind"], str(SnapshotKind.AT_REST)))
    by = ["topic", "consumer_group", "shard", "epoch", "generation"]
    for row in rests.group_by(by).aggregate([("at_ms", "min"), ("at_ms", "max")]).to_pylist():
        key = (row["topic"], row["consumer_group"], row["shard"], row["epoch"])
        yield key, row["generation"], row["at_ms_min"], row["at_ms_max"]


def no_rows(stream: Table) -> pa.Table:
    """Makes an empty table with the columns of the stream."""
    return pa.table({column.name: pa.array([], _TYPES[column.kind]) for column in stream.columns})


def stream_table(data: bytes, file: HistoryFile, stream: Table, problems: list[str]) -> pa.Table | None:
    """Parses all columns of the stream. Returns None and adds to `problems` if the bytes cannot be trusted."""
    where = f"history file {file.path}"
    if not _is_named(data, file, problems):
        return None
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as parquet:  # pq.read_table takes twice as long for small files
            table = parquet.read(use_threads=False)
        columns = [_column(table, column) for column in stream.columns]
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        problems.append(f"{where}: has not the columns of {stream.name} that this audit knows: {error}")
        return None
    if table.num_rows != file.rows:
        problems.append(f"{where}: has {table.num_rows} rows, the manifest says {file.rows}")
        return None
    return pa.table(columns, names=[column.name for column in stream.columns])


def trusted_bytes(filesystem: arrow_fs.FileSystem, base: str, file: HistoryFile, problems: list[str]) -> bytes | None:
    """Reads the file that the manifest names. Returns None and adds to `problems` if the file has other bytes."""
    data = _read(filesystem, base, file, problems)
    return data if data is not None and _is_named(data, file, problems) else None


def bytes_of(filesystem: arrow_fs.FileSystem, base: str, file: HistoryFile) -> bytes:
    """Reads the file without a check. Raises OSError."""
    return bytes_at(filesystem, f"{base}/{file.path}")


def _read(filesystem: arrow_fs.FileSystem, base: str, file: HistoryFile, problems: list[str]) -> bytes | None:
    try:
        return bytes_of(filesystem, base, file)
    except OSError as error:
        problems.append(f"history file {file.path}: cannot be read: {error}")
        return None


def _is_named(data: bytes, file: HistoryFile, problems: list[str]) -> bool:
    """True if these are the bytes that the manifest names. Otherwise adds a line to `problems`."""
    is_named = hashlib.sha256(data).hexdigest() == file.sha256
    if not is_named:
        where = f"history file {file.path}"
        problems.append(f"{where}: is not the file that the manifest names (SHA-256): truncated, swapped or altered")
    return is_named


def _column(table: pa.Table, column: Column) -> pa.ChunkedArray:
    if column.name not in table.column_names:
        raise KeyError(f"column {column.name} is missing")
    values: pa.ChunkedArray = table.column(column.name).cast(_TYPES[column.kind])
    if values.null_count and not column.nullable:
        raise ValueError(f"column {column.name} has {values.null_count} NULLs")
    return values
