"""Writes files of judged keys in the task that judges the keys. No other attempt uses the same file names.

Afterwards output/judged_tables.py, in the driver, takes the files that the tasks' answers name. Other files come from
killed and second attempts. They are removed with the folder of the run.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.audit.errors import AuditError, unwritable
from reconciler.audit.evidence.plan import JudgePlan
from reconciler.audit.judge.judged_keys import timestamps
from reconciler.audit.judged_tables.schema import KEYS, SCHEMAS
from reconciler.audit.result.values import KeyFile, Window

ROWS_A_GROUP = 131_072
#: Options of the Parquet writer. Equal columns give equal bytes, and no library's schema is embedded (as in
#: output/tables.py).
WRITING: Mapping[str, Any] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "compression": "zstd",
    "compression_level": 1,
    "write_statistics": True,
    "store_schema": False,
}
_PLAIN = ("key", "counted_at", "committed_at", "announced_at", "consumed_at", "applied_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTarget:
    """Folder into which tasks write, and the values that all rows share. Every executor sees the folder."""

    folder: str
    run: str
    environment: str


@dataclass(slots=True)
class _File:
    name: str
    writer: pq.ParquetWriter
    waiting: list[pa.Table] = field(default_factory=list)
    rows_waiting: int = 0
    rows: int = 0


class KeyFiles:
    """Files of one task, one per subscription. Leaving the block removes files that were not finished."""

    def __init__(self, target: KeyTarget, plan: JudgePlan) -> None:
        self._target = target
        self._plan = plan
        self._files: dict[int, _File] = {}

    def __enter__(self) -> KeyFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError, pa.ArrowException):
                file.writer.close()
            Path(self._target.folder, file.name).unlink(missing_ok=True)

    def add(self, place: int, keys: pa.Table) -> None:
        """Takes rows of a subscription. The rows wait in memory until they fill a row group.

        Raises AuditError("engine").
        """
        try:
            file = self._files.get(place) or self._opened(place)
            file.waiting.append(keys)
            file.rows_waiting += len(keys)
            if file.rows_waiting >= ROWS_A_GROUP:
                self._write(place, file)
        except OSError as error:
            raise unwritable(self._target.folder, error) from error

    def finish(self) -> list[KeyFile]:
        """Completes and syncs the files. Raises AuditError("engine")."""
        finished: list[KeyFile] = []
        try:
            for place, file in self._files.items():
                self._write(place, file)
                file.writer.close()
                sync(Path(self._target.folder, file.name))
                finished.append(KeyFile(place=place, name=file.name, rows=file.rows))
        except OSError as error:
            raise unwritable(self._target.folder, error) from error
        self._files.clear()
        return finished

    def _opened(self, place: int) -> _File:
        if not Path(self._target.folder).is_dir():
            raise AuditError(
                "engine", f"{self._target.folder} is not there: --tables must lie where every executor sees it"
            )
        name = f"{place:03d}-{uuid.uuid4().hex}.parquet"
        names = [name for name in SCHEMAS[KEYS].names if name not in _PLAIN]
        writer = pq.ParquetWriter(Path(self._target.folder, name), SCHEMAS[KEYS], use_dictionary=names, **WRITING)
        self._files[place] = _File(name, writer)
        return self._files[place]

    def _write(self, place: int, file: _File) -> None:
        if not file.waiting:
            return
        keys = pa.concat_tables(file.waiting)
        asked = self._plan.subscriptions[place]
        target = self._target
        columns = of_window(target.run, target.environment, self._plan.window, asked.topic, asked.group, len(keys))
        arrays = [columns[name] if name in columns else keys[name] for name in SCHEMAS[KEYS].names]
        file.writer.write_table(pa.table(arrays, names=SCHEMAS[KEYS].names).cast(SCHEMAS[KEYS]))
        file.rows += len(keys)
        file.waiting, file.rows_waiting = [], 0


def of_window(run: str, environment: str, window: Window, topic: str, group: str, rows: int) -> dict[str, pa.Array]:
    """Makes the columns that name run, window and subscription of rows."""

    def same(text: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([text], pa.string()))

    return {
        "run": same(run),
        "environment": same(environment),
        "window_start": timestamps(np.full(rows, window.start_ms)),
        "window_end": timestamps(np.full(rows, window.end_ms)),
        "topic": same(topic),
        "consumer_group": same(group),
    }


def sync(path: Path) -> None:
    """Syncs a file or a folder to the disk, so that the bytes or the names survive a loss of power. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
