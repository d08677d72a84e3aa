"""Evidence rows as Parquet files by prefix: DIR/<table>/prefix=<NN>/<part>.parquet, with bounded memory.

A file is written under another name and renamed when it is whole and on the disk, so a task that runs twice (another
attempt after a lost executor) leaves each file once; what a dead attempt leaves besides is removed (`remove_rests`).
"""

from __future__ import annotations

import hashlib
import os
import socket
import zlib
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.audit.collect.columns import schema_of
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.key_columns import key_offsets
from reconciler.contract.history_row import PREFIXES
from reconciler.contract.schema import Table

#: Rows of all prefixes together that wait in memory: about 40 MB.
WAITING_ROWS = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One file of the evidence."""

    #: Relative to the evidence folder, with "/".
    path: str
    rows: int
    sha256: str


def remove_rests(folder: Path, written: Container[str]) -> None:
    """Removes every file that no finished task named: rests of attempts that died with their executor.

    An attempt that was given up and still runs somewhere then fails to rename its file. Raises OSError.
    """
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            if path.relative_to(folder).as_posix() not in written:
                path.unlink(missing_ok=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Host and folder are named: of a cluster's executors, only one may have a full disk, or not see the folder."""
    try:
        yield
    except OSError as error:
        where = f"{folder} on {socket.gethostname()}"
        raise AuditError("engine", f"evidence cannot be written: {where}: {error.strerror or error}") from error


class PrefixWriter:
    """The files of one task: `add` rows, then `close` gives what was written; leaving early removes what is half."""

    def __init__(self, folder: Path, layout: Table, part: str) -> None:
        self._folder = folder
        self._layout = layout
        self._part = part
        self._schema = schema_of(layout)
        # Keys and times are different in each row: looking for those that come again costs half of the writing.
        self._names = [column.name for column in layout.columns if column.kind == "name"]
        self._waiting: list[pa.Table] = []
        self._count = 0
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._rows: dict[str, int] = {}

    def __enter__(self) -> PrefixWriter:
        return self

    def __exit__(self, kind: object, _value: object, _traceback: object) -> None:
        if kind is None:
            return
        for path, writer in self._writers.items():
            try:
                writer.close()
            except OSError:
                pass  # a full disk may be the error that is raised already
            finally:
                self._partial(path).unlink(missing_ok=True)

    def add(self, table: pa.Table) -> None:
        """Rows with the layout's columns. Raises AuditError("engine") for a full disk and the like."""
        self._waiting.append(table)
        self._count += table.num_rows
        if self._count >= WAITING_ROWS:
            with _writing(self._folder):
                self._flush()

    def close(self) -> list[WrittenFile]:
        """Ends every file. Raises AuditError("engine") for a full disk and the like."""
        with _writing(self._folder):
            self._flush()
            for writer in self._writers.values():
                writer.close()
            return [self._finished(path) for path in sorted(self._writers)]

    def _flush(self) -> None:
        for path, rows in self._split():
            if path not in self._writers:
                partial = self._partial(path)
                # Not its parents: an audit that gave up has removed them, and a late task must not bring them back.
                partial.parent.mkdir(exist_ok=True)
                self._writers[path] = pq.ParquetWriter(
                    partial, self._schema, compression="zstd", use_dictionary=self._names
                )
            self._writers[path].write_table(rows)
            self._rows[path] = self._rows.get(path, 0) + rows.num_rows
        self._waiting, self._count = [], 0

    def _split(self) -> Iterator[tuple[str, pa.Table]]:
        if not self._count:
            return
        table = pa.concat_tables(self._waiting).combine_chunks()
        if "key" not in self._schema.names:
            yield f"{self._layout.name}/{self._part}.parquet", table
            return
        prefixes = _prefixes(table["key"].chunk(0))
        order = np.argsort(prefixes, kind="stable")
        bounds = np.searchsorted(prefixes[order], np.arange(PREFIXES + 1))
        table = table.take(pa.array(order))
        for prefix in range(PREFIXES):
            first, end = bounds[prefix], bounds[prefix + 1]
            if first < end:
                path = f"{self._layout.name}/prefix={prefix:02d}/{self._part}.parquet"
                yield path, table.slice(first, end - first)

    def _partial(self, path: str) -> Path:
        place = self._folder / path
        return place.with_name(f".{place.name}.{os.getpid()}.partial")

    def _finished(self, path: str) -> WrittenFile:
        partial = self._partial(path)
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        partial.rename(self._folder / path)
        return WrittenFile(path=path, rows=self._rows[path], sha256=digest)


def _prefixes(keys: pa.Array) -> npt.NDArray[np.int8]:
    """The partition of each key (contract/history_row.py)."""
    crc32, data, offsets = zlib.crc32, memoryview(keys.buffers()[2]), key_offsets(keys).tolist()
    found = (crc32(data[first:end]) % PREFIXES for first, end in pairwise(offsets))
    return np.fromiter(found, np.int8, len(keys))
