"""Writes histories for tests as the contract says, and lets tests damage them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from reconciler.audit.history.chain import read_chain
from reconciler.contract.history_row import HISTORY_STREAMS, prefix_of
from reconciler.contract.manifest import HistoryFile, ManifestEntry, digest_of, entry_name, manifest_folder
from reconciler.contract.schema import Table

STREAMS = {stream.name: stream for stream in HISTORY_STREAMS}
_TYPES = {
    "key": pa.binary(),
    "name": pa.dictionary(pa.int32(), pa.string()),
    "text": pa.string(),
    "bool": pa.bool_(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
}


def day_of(at_ms: int) -> str:
    """The UTC day."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d")


def schema_of(stream: Table) -> pa.Schema:
    """Arrow types of a stream's rows."""
    return pa.schema([pa.field(c.name, _TYPES[c.kind], nullable=c.nullable) for c in stream.columns])


class WrittenHistory:
    """A history in a folder: `seal` adds rows of any streams as one manifest entry."""

    def __init__(self, folder: Path, environment: str = "test") -> None:
        self.folder = folder
        self.environment = environment
        self.sequence = 0
        self.digest = ""
        self.files: dict[str, HistoryFile] = {}
        (folder / manifest_folder(environment)).mkdir(parents=True)

    def entry_path(self, sequence: int) -> Path:
        """An entry's file."""
        return self.folder / manifest_folder(self.environment) / entry_name(sequence)

    def seal(self, rows: Mapping[str, Sequence[Mapping[str, Any]]], *, compression: str = "zstd") -> list[HistoryFile]:
        """Writes rows by stream; one file a stream, day and prefix."""
        added: list[HistoryFile] = []
        for name in sorted(rows):
            stream = STREAMS[name]
            parts: dict[tuple[str, int | None], list[Mapping[str, Any]]] = defaultdict(list)
            for row in rows[name]:
                parts[day_of(row["at_ms"]), prefix_of(row["key"]) if stream.has_key else None].append(row)
            for (day, prefix), of in sorted(parts.items(), key=str):
                added.append(self._write(stream, day, prefix, of, compression))
        self.append(added=tuple(added))
        return added

    def append(self, **fields: Any) -> None:
        """One manifest entry."""
        entry = ManifestEntry(
            environment=self.environment,
            sequence=self.sequence + 1,
            previous=self.digest,
            action=fields.pop("action", "seal"),
            writer="test",
            written_at_ms=self.sequence,
            **fields,
        )
        data = entry.encoded()
        self.entry_path(entry.sequence).write_bytes(data)
        self.sequence, self.digest = entry.sequence, digest_of(data)
        for path in entry.removed:
            self.files.pop(path, None)
        self.files.update({file.path: file for file in entry.added})

    def _write(
        self, stream: Table, day: str, prefix: int | None, rows: Sequence[Mapping[str, Any]], compression: str
    ) -> HistoryFile:
        folder = f"{stream.name}/environment={self.environment}/date={day}/"
        folder += "" if prefix is None else f"prefix={prefix:02d}/"
        path = f"{folder}{self.sequence + 1:06d}.parquet"
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        schema = schema_of(stream)
        filled = [{column.name: row.get(column.name) for column in stream.columns} for row in rows]
        pq.write_table(pa.Table.from_pylist(filled, schema=schema), target, compression=compression)
        data = target.read_bytes()
        return HistoryFile(
            path=path,
            stream=stream.name,
            date=day,
            prefix=prefix,
            rows=len(rows),
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            first_ms=min(row["at_ms"] for row in rows),
            last_ms=max(row["at_ms"] for row in rows),
        )


def merge_away(folder: Path, environment: str) -> None:
    """Each file with keys is another one from now on, as after a merge, and has been deleted."""
    chain = read_chain(LocalFileSystem(), str(folder), environment)
    before = [file for file in chain.files.values() if file.prefix is not None]
    merged = [replace(file, path=file.path.replace(".parquet", "-merged.parquet")) for file in before]
    for old, new in zip(before, merged, strict=True):
        (folder / old.path).rename(folder / new.path)
    entry = ManifestEntry(
        environment=environment,
        sequence=chain.sequence + 1,
        previous=chain.digest,
        action="compact",
        writer="test",
        written_at_ms=chain.sequence,
        added=tuple(merged),
        removed=tuple(file.path for file in before),
    )
    (folder / manifest_folder(environment) / entry_name(entry.sequence)).write_bytes(entry.encoded())


def round_row(shard: int, generation: int, at_ms: int, **fields: Any) -> dict[str, Any]:
    """A row of `round` with nothing in it."""
    return {
        "topic": "ORDERS",
        "consumer_group": "billing",
        "shard": shard,
        "epoch": "test:1",
        "generation": generation,
        "at_ms": at_ms,
        "announced": 0,
        "consumed": 0,
        "left_matched": 0,
        **fields,
    }
