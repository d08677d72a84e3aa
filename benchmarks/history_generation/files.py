"""Parquet files with their digests, by table and prefix, and by day (or half an hour) where rows are history."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.history_generation.plan import Plan
from reconciler.contract.manifest import HistoryFile

#: Random bytes, which no codec makes smaller.
_RANDOM = frozenset({"key", "content_digest"})
#: Columns with few different values in a file.
_REPEATED = frozenset({"generation", "at_ms", "shard"})
SLICE_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class Written:
    """One file of the evidence that is no history."""

    path: str
    rows: int
    sha256: str


def encoded(table: pa.Table) -> pa.Buffer:
    """The bytes of a Parquet file; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    compression = {field.name: "none" if field.name in _RANDOM else "zstd" for field in table.schema}
    repeated = [field.name for field in table.schema if pa.types.is_dictionary(field.type) or field.name in _REPEATED]
    pq.write_table(
        table, sink, compression=compression, compression_level=None, use_dictionary=repeated, store_schema=False
    )
    return sink.getvalue()


def day_of(time_ms: int) -> str:
    """UTC day."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d")


class Folder:
    """Writes below one folder; `files` and `history` are what was written."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan, self.root = plan, root
        self.files: list[Written] = []
        self.history: list[HistoryFile] = []

    def evidence(self, name: str, prefix: int | None, table: pa.Table) -> None:
        """The files of one table and prefix (None: not partitioned); none for a table without rows."""
        if not table.num_rows:
            (self.root / name).mkdir(parents=True, exist_ok=True)
            return
        for part, rows in enumerate(self._copies(table, prefix or 0)):
            place = name if prefix is None else f"{name}/prefix={prefix:02d}"
            path = f"{place}/part-{part}.parquet"
            digest, _ = self._write(path, rows)
            self.files.append(Written(path, table.num_rows, digest))

    def stream(self, name: str, prefix: int | None, table: pa.Table) -> None:
        """The files of a stream: rows by day, and by half an hour unless the history is compacted."""
        at = table["at_ms"].to_numpy()
        step = 86_400_000 if self.plan.compacted else SLICE_MS
        slices = at // step
        for number in np.unique(slices).tolist():
            part = table.filter(pa.array(slices == number)) if len(at) else table
            first, last = int(at[slices == number].min()), int(at[slices == number].max())
            folder = f"{name}/environment={self.plan.environment}/date={day_of(first)}"
            if prefix is not None:
                folder += f"/prefix={prefix:02d}"
            for copy, rows in enumerate(self._copies(part, prefix or 0)):
                path = f"{folder}/{number:08d}-{copy}.parquet"
                digest, size = self._write(f"history/{path}", rows)
                self.history.append(
                    HistoryFile(
                        path=path,
                        stream=name,
                        date=day_of(first),
                        prefix=prefix,
                        rows=part.num_rows,
                        size_bytes=size,
                        sha256=digest,
                        first_ms=first,
                        last_ms=last,
                    )
                )

    def _copies(self, table: pa.Table, salt: int) -> list[pa.Table]:
        copies = [table, table] if self.plan.files_twice else [table]
        if not (self.plan.files_twice or self.plan.shuffled):
            return copies
        rng = np.random.default_rng([self.plan.seed, 4, salt])
        kept = 0 if self.plan.shuffled else 1
        return copies[:kept] + [copy.take(pa.array(rng.permutation(copy.num_rows))) for copy in copies[kept:]]

    def _write(self, path: str, table: pa.Table) -> tuple[str, int]:
        data = encoded(table)
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.write(data)
        return hashlib.sha256(data).hexdigest(), data.size
