"""Reads one Parquet file as an Arrow table, after checks of its bytes, rows, columns and states.

A file that fails a check raises AuditError("inputs"). The message names the file and says what to do.
"""

from __future__ import annotations

import functools
import hashlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as arrow_fs

from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.key_columns import KEY_BYTES_MAX, lengths_seen
from reconciler.audit.evidence.plan import PartOfFile, PlannedFile
from reconciler.audit.evidence.row_groups import HeldBytes, Range, footer_range, group_ranges, metadata_of
from reconciler.audit.evidence.tables import ReadTable
from reconciler.audit.places import open_folder
from reconciler.contract.evidence_layout import LATER_COLUMNS

#: Largest size of a file that is read once, into memory. A larger file is read for the digest, and then by row groups.
WHOLE_FILE_BYTES_MAX = 256 * 1024 * 1024
#: Number of files of all prefixes whose metadata stays in memory. The metadata of a file takes some 0.3 MB.
_METADATA_KEPT = 64
#: Length of a SHA-256 in bytes.
DIGEST_BYTES = 32
_OTHER_SCHEMA = "it is of another schema version: write it with this version's collector, or audit it with its own"
_BRING_BACK = "bring it back, or collect again; executors of a cluster must all see it under this path"
_HASH_BYTES = 4 * 1024 * 1024
#: Maximum number of characters of a value that a message repeats.
_SHOWN_CHARACTERS_MAX = 60
#: Largest believable time. A time beyond the year 5000 has another unit.
TIME_MS_MAX = 10**14

_NAMES: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    lambda kind: pa.types.is_dictionary(kind) and (pa.types.is_string(kind.value_type) or _is_large(kind.value_type)),
)
_BYTES: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_KINDS: Mapping[str, tuple[Callable[[Any], bool], ...]] = {
    "key": _BYTES,
    "digest": _BYTES,
    "name": _NAMES,
    "text": _NAMES,
    "integer": (pa.types.is_int32, pa.types.is_int64),
    "bigint": (pa.types.is_int64, pa.types.is_int32),
    "bool": (pa.types.is_boolean,),
}


class VerifiedFile:
    """File whose digest, number of rows and columns have been checked."""

    def __init__(self, file: PlannedFile, table: ReadTable | None, *, is_verified: bool = False) -> None:
        """Checks the file. With `table` None, only the digest is checked.

        `is_verified` says that this task has checked the digest before.
        """
        self._file = file
        self._table = table
        source, metadata = _open(file, is_verified=is_verified)
        if self._table is None:
            return
        try:
            # read_dictionary refuses absent columns.
            names = [c.name for c in self._table.columns if c.kind == "name" and c.name not in LATER_COLUMNS]
            self._parquet = pq.ParquetFile(source, metadata=metadata, read_dictionary=names)
        except KeyError as error:  # the column that read_dictionary names is not in the file
            name = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
            raise wrong(file, f"has no column `{name}`", _OTHER_SCHEMA) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise wrong(file, f"is no readable Parquet file ({_line(error)})", "write it again") from error
        rows = file.rows if file.part is None else file.part.rows_of_file
        if self._parquet.metadata.num_rows != rows:
            raise wrong(file, f"has {self._parquet.metadata.num_rows} rows, {rows} were announced")
        self._groups = (
            range(self._parquet.num_row_groups) if file.part is None else [g.number for g in file.part.groups]
        )
        self._check_columns()

    def batches(self, columns: Sequence[str], *, by_row_group: bool = False) -> Iterator[pa.Table]:
        """Yields these columns after checks of NULLs and states. A batch has all rows, or the rows of one row group.

        If a column of LATER_COLUMNS is absent, the values are NULL.
        """
        lacking = set(columns) - set(self._parquet.schema_arrow.names)
        for groups in [[n] for n in self._groups] if by_row_group else [[*self._groups]]:
            try:
                table = self._parquet.read_row_groups(groups, columns=[*columns], use_threads=False)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise wrong(self._file, f"cannot be decoded ({_line(error)})", "write it again") from error
            self._check_values(table)
            for name in lacking:
                table = table.append_column(name, pa.nulls(len(table)))
            yield table

    def _check_columns(self) -> None:
        schema = self._parquet.schema_arrow
        assert self._table is not None  # noqa: S101 - only called for tables that are read
        for column in self._table.columns:
            place = schema.get_field_index(column.name)
            if place < 0 and column.name in LATER_COLUMNS:
                continue
            if place < 0:
                raise wrong(self._file, f"has no column `{column.name}`", _OTHER_SCHEMA)
            kind = schema.field(place).type
            if column.nullable and pa.types.is_null(kind):
                continue
            if not any(fits(kind) for fits in _KINDS[column.kind]):
                raise wrong(self._file, f"column `{column.name}` has the type {kind}, not {column.kind}")

    def _check_values(self, table: pa.Table) -> None:
        assert self._table is not None  # noqa: S101 - only called for tables that are read
        for column in self._table.columns:
            if not column.nullable and column.name in table.column_names and table[column.name].null_count:
                raise wrong(self._file, f"column `{column.name}` has {table[column.name].null_count} NULLs")
            if column.name.endswith("_ms") and column.name in table.column_names:
                self._check_times(column.name, table[column.name])
            if column.kind == "digest" and column.name in table.column_names:
                self._check_digests(table[column.name].drop_null())
        if self._table.states is not None and self._table.states[0] in table.column_names:
            name, states = self._table.states
            self._check_states(table[name], name, frozenset(states))
        if "key" in table.column_names:
            self._check_keys(table["key"])

    def _check_states(self, column: pa.ChunkedArray, name: str, known: frozenset[str]) -> None:
        for value in sorted(set(column.unique().to_pylist())):
            if value not in known:
                remedy = "it was written by a newer version: audit it with that one"
                shown = repr(value[:_SHOWN_CHARACTERS_MAX])
                raise wrong(self._file, f"column `{name}` holds {shown}, which this audit does not know", remedy)

    def _check_digests(self, column: pa.ChunkedArray) -> None:
        lengths = [] if pa.types.is_null(column.type) else lengths_seen(column.chunks)
        if lengths not in ([], [DIGEST_BYTES]):
            raise wrong(self._file, f"holds content digests of {lengths} bytes, not {DIGEST_BYTES}")

    def _check_keys(self, column: pa.ChunkedArray) -> None:
        lengths = lengths_seen(column.chunks)
        if lengths and not 0 < lengths[0] <= lengths[-1] <= KEY_BYTES_MAX:
            raise wrong(
                self._file, f"column `key` holds keys of {lengths[0]} to {lengths[-1]} bytes, not 1 to {KEY_BYTES_MAX}"
            )

    def _check_times(self, name: str, column: pa.ChunkedArray) -> None:
        found = pc.min_max(column).as_py()
        for value in (found["min"], found["max"]):
            if value is not None and not 0 <= value <= TIME_MS_MAX:
                raise wrong(self._file, f"column `{name}` holds {value}, which is no time in milliseconds UTC")


def wrong(file: PlannedFile, what: str, remedy: str = "collect it again") -> AuditError:
    """Makes the error for a file that fails a check."""
    return AuditError("inputs", f"{file.shown}: {what}; {remedy}")


def _open(file: PlannedFile, *, is_verified: bool) -> tuple[Any, pq.FileMetaData | None]:
    """Opens the file for random access and checks the SHA-256.

    Also returns the file's metadata if the metadata are known already.
    """
    try:
        filesystem, base = _folder(file.root)
        path = f"{base.rstrip('/')}/{file.path}"
        info = filesystem.get_file_info(path)
        if info.type != arrow_fs.FileType.File:
            raise wrong(file, f"is missing: {_shown_to(file)}", _BRING_BACK)
        if file.part is not None:
            return _part(file, file.part, filesystem, path)
        if info.size <= WHOLE_FILE_BYTES_MAX:
            with filesystem.open_input_stream(path) as stream:
                data = stream.read_buffer()
            if not is_verified:
                _same(file, hashlib.sha256(data).hexdigest(), file.sha256)
            return pa.BufferReader(data), None
        if not is_verified:
            digest = hashlib.sha256()
            with filesystem.open_input_stream(path) as stream:
                while chunk := stream.read(_HASH_BYTES):
                    digest.update(chunk)
            _same(file, digest.hexdigest(), file.sha256)
        return filesystem.open_input_file(path), None
    except (OSError, pa.ArrowException) as error:
        where = f"{_shown_to(file)} ({_line(error)})"
        raise wrong(file, f"cannot be read: {where}", "check the path and the permissions") from error


def _part(file: PlannedFile, part: PartOfFile, filesystem: arrow_fs.FileSystem, path: str) -> tuple[Any, Any]:
    """Opens some row groups, with the whole file's metadata. Checks the SHA-256 of each row group."""
    size, metadata, ranges = _metadata(replace(file, rows=0, part=None), part.footer_sha256, path)
    pieces = []
    with filesystem.open_input_file(path) as whole:
        for group in part.groups:
            if group.number >= len(ranges) or metadata.row_group(group.number).num_rows != group.rows:
                raise wrong(file, f"has no row group {group.number} of {group.rows} rows")
            first, end = ranges[group.number]
            data = whole.read_at(end - first, first)
            _same(file, hashlib.sha256(data).hexdigest(), group.sha256)
            pieces.append((first, data))
    return HeldBytes(size, pieces), metadata


@functools.lru_cache(maxsize=_METADATA_KEPT)
def _metadata(file: PlannedFile, sha256: str, path: str) -> tuple[int, pq.FileMetaData, tuple[Range, ...]]:
    """Reads size, metadata and ranges of row groups of a file.

    The result is cached, because each prefix needs the values.
    """
    with _folder(file.root)[0].open_input_file(path) as whole:
        size = whole.size()
        try:
            first, end = footer_range(whole, size)
            footer = whole.read_at(end - first, first)
            _same(file, hashlib.sha256(footer).hexdigest(), sha256)
            metadata = metadata_of(footer)
            return size, metadata, group_ranges(metadata)
        except ValueError as error:
            raise wrong(file, f"is no readable Parquet file ({_line(error)})", "write it again") from error


def _shown_to(file: PlannedFile) -> str:
    """Names path and host, because executors run on other hosts and may have other disks."""
    return f"{file.root}/{file.path} on {socket.gethostname()}"


def _same(file: PlannedFile, found: str, expected: str) -> None:
    if found != expected:
        raise wrong(
            file,
            f"is not the file that was collected: SHA-256 {found[:16]}... instead of {expected[:16]}..., so it is "
            "truncated, altered or another window's",
            "bring the right one back, or collect again",
        )


@functools.lru_cache(maxsize=64)
def _folder(root: str) -> tuple[arrow_fs.FileSystem, str]:
    return open_folder(root)


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _is_large(kind: Any) -> bool:
    return bool(pa.types.is_large_string(kind))
