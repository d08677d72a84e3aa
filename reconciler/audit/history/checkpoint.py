"""File in OUT that says which part of a manifest the audit has verified.

The next audit reads the manifest from there on. The file has the columns of contract/manifest.py HistoryFile, and one
row per file of the history. The file's metadata names the newest entry that was read. The file is believed only if a
signed statement lists it (statement/checkpoint.py).
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.history.check import HistoryState
from reconciler.contract.manifest import HistoryFile

#: Name of the file in OUT.
CHECKPOINT = "manifest.parquet"
_HEAD = ("environment", "sequence", "digest", "kept_from")
_COLUMNS = {
    "path": pa.string(),
    "stream": pa.string(),
    "date": pa.string(),
    "prefix": pa.int32(),
    "rows": pa.int64(),
    "size_bytes": pa.int64(),
    "sha256": pa.string(),
    "first_ms": pa.int64(),
    "last_ms": pa.int64(),
}


def checkpoint_of(history: HistoryState) -> bytes:
    """Makes the bytes of the file. The same manifest gives the same bytes."""
    files = sorted((file for by in history.files.values() for of in by.values() for file in of), key=lambda f: f.path)
    arrays = [pa.array([getattr(file, name) for file in files], kind) for name, kind in _COLUMNS.items()]
    table = pa.Table.from_arrays(arrays, names=list(_COLUMNS))
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, table.schema, version="2.6", compression="zstd", compression_level=3, store_schema=False
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({name: str(getattr(history, name) or "") for name in _HEAD})
    return sink.getvalue()


def verified_chain(data: bytes) -> HistoryChain:
    """Reads the chain that the audit has verified. Raises ValueError or pyarrow.ArrowException for another file."""
    with pq.ParquetFile(pa.BufferReader(data)) as parquet:
        found: Mapping[bytes, bytes] = parquet.metadata.metadata or {}
        table = parquet.read(columns=list(_COLUMNS), use_threads=False)
    if any(name.encode() not in found for name in _HEAD):
        raise ValueError("its newest entry is not told in it")
    head = {name: found[name.encode()].decode() for name in _HEAD}
    rows = zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True)
    files = (HistoryFile(**dict(zip(_COLUMNS, row, strict=True))) for row in rows)
    return HistoryChain(
        environment=head["environment"],
        sequence=int(head["sequence"]),
        digest=head["digest"],
        kept_from=head["kept_from"] or None,
        files={file.path: file for file in files},
        problems=(),
    )
