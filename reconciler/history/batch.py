"""Rows of one stream on the way into the history. A value that all rows share is held once. Keys are packed."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from reconciler.contract.history_row import HISTORY_STREAMS
from reconciler.contract.schema import Table
from reconciler.errors import MalformedInput

Value = str | int | bool | None

STREAMS: Mapping[str, Table] = {stream.name: stream for stream in HISTORY_STREAMS}

#: Three lengths of a batch: of the JSON header, of the key lengths, and of the keys.
_HEAD = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class PackedKeys:
    """Keys of 1 to 255 bytes, one after the other in one piece of memory.

    A key of 16 bytes takes 17 bytes, and no Python object.
    """

    #: Lengths of the keys, one byte per key.
    lengths: bytes
    data: bytes

    @staticmethod
    def of(keys: Iterable[bytes]) -> PackedKeys:
        """Packs the keys in the given order."""
        listed = keys if isinstance(keys, list | tuple) else list(keys)
        return PackedKeys(bytes(map(len, listed)), b"".join(listed))

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[bytes]:
        ends = accumulate(self.lengths)
        return (self.data[end - length : end] for end, length in zip(ends, self.lengths, strict=True))


NO_KEYS = PackedKeys(b"", b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Rows of one stream, one row per key. For a stream without keys, `shared` holds the whole of the only row."""

    stream: str
    #: Column -> value that all rows have.
    shared: Mapping[str, Value]
    keys: PackedKeys = NO_KEYS
    #: Column -> one value per row, for columns whose values differ.
    columns: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys) if STREAMS[self.stream].has_key else 1


def encode(batches: Sequence[RowBatch]) -> bytes:
    """Encodes batches that belong together as one payload of the spool.

    The spool keeps a payload whole or not at all.
    """
    return b"".join(part for batch in batches for part in _parts(batch))


def _parts(batch: RowBatch) -> Iterator[bytes]:
    columns = {name: list(values) for name, values in batch.columns.items()}
    header = json.dumps(
        {"stream": batch.stream, "shared": dict(batch.shared), "columns": columns}, separators=(",", ":")
    ).encode()
    yield _HEAD.pack(len(header), len(batch.keys), len(batch.keys.data))
    yield header
    yield batch.keys.lengths
    yield batch.keys.data


def decode(payload: bytes) -> list[RowBatch]:
    """Decodes a payload. Raises MalformedInput for bytes that are no batches of known streams."""
    batches, position = [], 0
    try:
        while position < len(payload):
            header_bytes, keys, data_bytes = _HEAD.unpack_from(payload, position)
            header_end = position + _HEAD.size + header_bytes
            header = json.loads(payload[position + _HEAD.size : header_end])
            position = header_end + keys + data_bytes
            packed = PackedKeys(payload[header_end : header_end + keys], payload[header_end + keys : position])
            batch = RowBatch(stream=header["stream"], shared=header["shared"], keys=packed, columns=header["columns"])
            _require(batch, is_whole=sum(packed.lengths) == len(packed.data) == data_bytes)
            batches.append(batch)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise MalformedInput(f"a history record of {len(payload)} bytes cannot be read: {error!r}") from error
    return batches


def _require(batch: RowBatch, *, is_whole: bool) -> None:
    stream = STREAMS[batch.stream]
    has = {*batch.shared, *batch.columns, *(("key",) if stream.has_key else ())}
    wanted = {column.name for column in stream.columns}
    if has != wanted:
        raise ValueError(f"{batch.stream} has columns {sorted(has)}, expected {sorted(wanted)}")
    if not is_whole or any(len(values) != len(batch) for values in batch.columns.values()):
        raise ValueError(f"{batch.stream}: columns of different lengths")
