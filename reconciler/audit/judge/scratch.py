"""Rows that wait on the disk for the reading of their slice. They are in one scratch file without a name.

The file ends with the process.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections import defaultdict
from types import TracebackType

import numpy as np
import pyarrow as pa

from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.key_columns import KEY_BYTES_MAX, contiguous
from reconciler.audit.judge.keys import KeyLayout, hash_of

#: Layout for keys of every length. With one layout, the slices of all files agree.
_ANY_LENGTH = KeyLayout((1, KEY_BYTES_MAX))


class Scratch:
    """Scratch file of rows by table and slice. The caller adds all rows, then reads each slice once."""

    def __init__(self, slices: int) -> None:
        self._slices = slices
        self._file = tempfile.TemporaryFile(prefix="checkback-audit-", buffering=0)  # noqa: SIM115 - __exit__ closes it
        self._end = 0
        #: (slice, table) -> (offset, length) of each piece in the file.
        self._pieces: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _value: object, _traceback: TracebackType | None) -> None:
        self._file.close()

    def add(self, table: str, rows: pa.Table) -> None:
        """Writes rows with a column `key`. Raises AuditError("engine") for errors of the disk."""
        numbers = (hash_of(_ANY_LENGTH.words(contiguous(rows["key"]))) % np.uint64(self._slices)).astype(np.int32)
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(self._slices + 1))
        rows = rows.take(pa.array(order))
        try:
            for number in range(self._slices):
                first, end = int(bounds[number]), int(bounds[number + 1])
                if first < end:
                    self._write((number, table), rows.slice(first, end - first))
        except OSError as error:
            where = f"{tempfile.gettempdir()} on {socket.gethostname()} takes no more rows that wait for their slice"
            remedy = "make room there, or name another folder in TMPDIR"
            raise AuditError("engine", f"{where}: {error.strerror or error}; {remedy}") from error

    def of(self, number: int, table: str) -> list[pa.Table]:
        """Reads a slice's rows of a table in the order of `add`. Each slice can be read once."""
        return [self._read(*place) for place in self._pieces.pop((number, table), ())]

    def _write(self, place: tuple[int, str], rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        data = sink.getvalue()
        written = 0
        while written < data.size:
            written += self._file.write(memoryview(data)[written:])
        self._pieces[place].append((self._end, data.size))
        self._end += data.size

    def _read(self, offset: int, length: int) -> pa.Table:
        with pa.ipc.open_stream(os.pread(self._file.fileno(), length, offset)) as stream:
            return stream.read_all()
