"""Writes evidence rows as Parquet files with bounded memory. Each task writes one file, DIR/<table>/<part>.parquet.

A file is written under a temporary name, synced to the disk, then renamed. So a task that runs twice, such as after a
lost executor, leaves one file. `remove_rests` removes temporary files that dead attempts left.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.audit.collect.columns import schema_of
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.key_columns import prefixes_of
from reconciler.audit.evidence.plan import RowGroup
from reconciler.audit.evidence.row_groups import group_ranges
from reconciler.audit.result.values import BUSINESS_ID
from reconciler.contract.history_row import PREFIXES
from reconciler.contract.schema import Table

#: Largest number of rows of all prefixes that wait in memory. They take about 40 MB.
WAITING_ROWS = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One file of the evidence."""

    #: Path below the evidence folder, with "/".
    path: str
    rows: int
    sha256: str
    #: Row groups of the file. Empty: the table has no keys.
    groups: tuple[RowGroup, ...] = ()
    #: SHA-256 of the bytes after the row groups. "": the table has no keys.
    footer_sha256: str = ""


def remove_rests(folder: Path, written: Container[str]) -> None:
    """Removes every file that no finished task has named. Such files are left by attempts that died with an executor.

    If an abandoned attempt still runs, the attempt then fails to rename its file. Raises OSError.
    """
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            if path.relative_to(folder).as_posix() not in written:
                path.unlink(missing_ok=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Adds host and folder to errors. A single executor may have a full disk, or may not see the folder."""
    try:
        yield
    except OSError as error:
        where = f"{folder} on {socket.gethostname()}"
        raise AuditError("engine", f"evidence cannot be written: {where}: {error.strerror or error}") from error


class PrefixWriter:
    """Writer of a table's rows to one file. Each row group has keys of one prefix.

    `close` completes the file. Without `close` no file stays.
    """

    def __init__(self, folder: Path, layout: Table, part: str) -> None:
        """Creates no file. The first rows create the file."""
        self._folder, self._path = folder, f"{layout.name}/{part}.parquet"
        self._schema = schema_of(layout)
        # Other columns have a different value in each row. A search for repeated values there takes half of the time.
        self._names = [column.name for column in layout.columns if column.kind == "name" and column.name != BUSINESS_ID]
        self._waiting: list[pa.Table] = []
        self._count = 0
        self._writer: pq.ParquetWriter | None = None
        #: Prefix and number of rows of each row group. The prefix is 0 if the table has no keys.
        self._groups: list[tuple[int, int]] = []

    def __enter__(self) -> PrefixWriter:
        return self

    def __exit__(self, kind: object, _value: object, _traceback: object) -> None:
        if kind is None or self._writer is None:
            return
        try:
            self._writer.close()
        except OSError:
            pass  # the error that is being raised may be a full disk
        finally:
            self._partial.unlink(missing_ok=True)

    def add(self, table: pa.Table) -> None:
        """Adds rows with the layout's columns to the file. Raises AuditError("engine") for errors of the disk."""
        self._waiting.append(table)
        self._count += table.num_rows
        if self._count >= WAITING_ROWS:
            with _writing(self._folder):
                self._flush()

    def close(self) -> list[WrittenFile]:
        """Completes the file, if rows were added. Raises AuditError("engine") for errors of the disk."""
        with _writing(self._folder):
            self._flush()
            if self._writer is None:
                return []
            self._writer.close()
            return [self._finished()]

    def _flush(self) -> None:
        if not self._count:
            return
        if self._writer is None:
            # The folder is not created here. An audit that gave up has removed the folder, and a late task must not
            # create the folder anew.
            self._writer = pq.ParquetWriter(
                self._partial,
                self._schema,
                compression="snappy",  # zstd takes three times as long for a row group of some hundred rows
                use_dictionary=self._names,
                write_statistics=["key"] if "key" in self._schema.names else False,
            )
        for prefix, rows in self._split():
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._groups.append((prefix, rows.num_rows))
        self._waiting, self._count = [], 0

    def _split(self) -> Iterator[tuple[int, pa.Table]]:
        table = pa.concat_tables(self._waiting).combine_chunks()
        if "key" not in self._schema.names:
            yield 0, table
            return
        prefixes = prefixes_of(table["key"].chunk(0))
        order = np.argsort(prefixes, kind="stable")
        bounds = np.searchsorted(prefixes[order], np.arange(PREFIXES + 1))
        table = table.take(pa.array(order))
        for prefix in range(PREFIXES):
            first, end = bounds[prefix], bounds[prefix + 1]
            if first < end:
                yield prefix, table.slice(first, end - first)

    @property
    def _partial(self) -> Path:
        place = self._folder / self._path
        return place.with_name(f".{place.name}.{os.getpid()}.partial")

    def _finished(self) -> WrittenFile:
        whole = hashlib.sha256()
        groups: list[RowGroup] = []
        with self._partial.open("rb") as file:
            ranges = group_ranges(pq.read_metadata(file))
            file.seek(0)
            for number, ((prefix, rows), (first, end)) in enumerate(zip(self._groups, ranges, strict=True)):
                whole.update(file.read(first - file.tell()))
                data = file.read(end - first)
                whole.update(data)
                groups.append(
                    RowGroup(number=number, prefix=prefix, rows=rows, sha256=hashlib.sha256(data).hexdigest())
                )
            footer = file.read()
            whole.update(footer)
            os.fsync(file.fileno())
        self._partial.rename(self._folder / self._path)
        has_prefixes = "key" in self._schema.names
        return WrittenFile(
            path=self._path,
            rows=sum(rows for _, rows in self._groups),
            sha256=whole.hexdigest(),
            groups=tuple(groups) if has_prefixes else (),
            footer_sha256=hashlib.sha256(footer).hexdigest() if has_prefixes else "",
        )
