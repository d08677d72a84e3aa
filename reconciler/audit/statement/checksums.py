"""A 64-bit checksum a row, vectorised: it names the row that was altered, and proves nothing.

What proves is the SHA-256 of the whole file. A row is one row of a Parquet file, one element of a JSON list, one value
of a JSON object (by its path), or one line of any other file.

Of a Parquet row with a key the upper half of the checksum is the key's alone (`key_marks`): so a row that is gone can
be named by its key wherever the evidence still has that key, and it costs no byte more.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Checksums = npt.NDArray[np.uint64]

#: Rows that are hashed at once: bounds the memory beside the file's own bytes.
BATCH_ROWS = 262_144
_KEY = "key"
_LOWER_BITS = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)
_NULL = np.uint64(0x9E3779B97F4A7C15)
#: What one file may unpack to; a larger one is not unpacked to name its rows.
UNPACKED_ROWS_MAX = 200_000_000
UNPACKED_BYTES_MAX = 16 * 1024**3
#: Longer values are hashed one by one; in words of 8 bytes.
_WORDS_MAX = 512
#: Columns that name a row to people, where they exist.
_NAMING = ("key", "topic", "consumer_group", "group", "at_ms")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one file: their checksums, and how each is called."""

    checksums: Checksums
    name: Callable[[int], str]
    #: Whether the upper halves are marks of keys.
    has_marks: bool = False


def rows_of(path: str, data: bytes, *, marks: bool = True) -> Rows:
    """Raises ValueError (pyarrow's own errors are such) or OSError for a file that its suffix does not describe.

    `marks`: False as checksums were before keys had marks.
    """
    if path.endswith(".parquet"):
        return _parquet_rows(data, marks=marks)
    if path.endswith(".json"):
        return _json_rows(json.loads(data))
    lines = data.split(b"\n")
    return Rows(_of_bytes(lines), lambda index: f"line {index + 1}")


def key_marks(keys: Any) -> Checksums:
    """The upper 32 bits of a checksum for each key of a binary array."""
    return _column_words(keys) >> _LOWER_BITS


def marks_of(checksums: Checksums) -> Checksums:
    """The marks in the checksums of a file that has them."""
    return checksums >> _LOWER_BITS


def json_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that holds no other, with its path (RFC 6901 without escapes), in the order of sorted names."""
    if isinstance(value, dict) and value:
        for name in sorted(value):
            yield from json_leaves(value[name], f"{path}/{name}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from json_leaves(item, f"{path}/{index}")
    else:
        yield path, value


def _json_rows(document: Any) -> Rows:
    if isinstance(document, list):
        items = document
        texts = [json.dumps(item, sort_keys=True).encode() for item in items]
        return Rows(_of_bytes(texts), lambda index: _element_name(items[index], index))
    leaves = list(json_leaves(document))
    texts = [json.dumps(leaf).encode() for leaf in leaves]
    return Rows(_of_bytes(texts), lambda index: leaves[index][0])


def _element_name(item: Any, index: int) -> str:
    named = ("path", "hour", "latency", "class", *_NAMING)
    words = [f"{name} {item[name]}" for name in named if isinstance(item, dict) and name in item]
    return f"element {index + 1}" + (f" ({', '.join(words)})" if words else "")


def _of_bytes(values: Sequence[bytes]) -> Checksums:
    return _binary_words(pa.array(values, type=pa.large_binary()))


def _parquet_rows(data: bytes, *, marks: bool) -> Rows:
    schema = opened_parquet(data).schema_arrow
    texts = [field.name for field in schema if str(field.type) in ("string", "large_string")]
    marks = marks and _KEY in schema.names and is_key(schema.field(_KEY).type)
    # Names repeat: each is hashed once a batch. The checksums are the same as of plain columns.
    file = pq.ParquetFile(io.BytesIO(data), read_dictionary=texts)
    parts = [_batch_checksums(batch, marks=marks) for batch in file.iter_batches(BATCH_ROWS, use_threads=False)]
    checksums = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    return Rows(checksums, lambda index: _parquet_row_name(data, index), has_marks=marks)


def opened_parquet(data: bytes) -> pq.ParquetFile:
    """Raises ValueError for a file that says that it unpacks to more than any of ours."""
    file = pq.ParquetFile(io.BytesIO(data))
    found = file.metadata
    unpacked = sum(found.row_group(number).total_byte_size for number in range(found.num_row_groups))
    if found.num_rows > UNPACKED_ROWS_MAX or unpacked > UNPACKED_BYTES_MAX:
        raise ValueError(f"it unpacks to {found.num_rows:,} rows of {unpacked:,} bytes: too many")
    return file


def is_key(kind: Any) -> bool:
    """Whether a column of this type can hold unique keys."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _parquet_row_name(data: bytes, index: int) -> str:
    file = pq.ParquetFile(io.BytesIO(data))
    columns = [name for name in _NAMING if name in file.schema_arrow.names]
    if not columns:
        return f"row {index + 1}"
    row = file.read(columns=columns).slice(index, 1)
    words = [
        f"{name.removeprefix('consumer_')} {shown}"
        for name, column in zip(columns, row.columns, strict=True)
        if (shown := _value_shown(column.combine_chunks())) is not None
    ]
    return f"row {index + 1} ({', '.join(words)})"


def _value_shown(column: Any) -> str | None:
    """The one value of a column that may be no UTF-8 any more; None for NULL."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    value = (column.cast(pa.large_binary()) if is_text else column)[0].as_py()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace") if is_text else value.hex().upper()
    return None if value is None else str(value)


def _batch_checksums(batch: Any, *, marks: bool) -> Checksums:
    total = np.zeros(batch.num_rows, dtype=np.uint64)
    upper: Checksums | None = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        seed = np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))
        words = _column_words(column)
        if marks and name == _KEY:
            upper = words >> _LOWER_BITS
        total = _mixed(total ^ words ^ seed)
    return total if upper is None else (upper << _LOWER_BITS) | (total & _LOWER)


def _column_words(column: Any) -> Checksums:
    """One word a value; NULL has one of its own."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        by_value = _column_words(column.dictionary)
        words = by_value[np.asarray(column.indices.fill_null(0))] if len(by_value) else np.empty(len(column), np.uint64)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        words = _binary_words(column.cast(pa.binary()).cast(pa.large_binary()))
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        words = _binary_words(column.cast(pa.large_binary()))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        words = _mixed(_numbers(column.cast(pa.uint64() if pa.types.is_unsigned_integer(kind) else pa.int64())))
    elif pa.types.is_floating(kind):
        words = _mixed(_numbers(column.cast(pa.float64())))
    else:  # no column of ours; slow, but never wrong
        return _of_bytes([repr(value).encode() for value in column.to_pylist()])
    if column.null_count:
        words[np.asarray(column.is_null())] = _NULL
    return words


def _numbers(column: Any) -> Checksums:
    values = np.asarray(column.fill_null(0))
    return np.ascontiguousarray(values).view(np.uint64)


def _binary_words(column: Any) -> Checksums:
    """One word a value of a large_binary array; what lies behind a NULL does not count."""
    count = len(column)
    if not count:
        return np.empty(0, dtype=np.uint64)
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[column.offset : column.offset + count + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    raw = np.zeros(last - first + 8, dtype=np.uint8)  # 8 more, so that the last word can be read whole
    if last > first:
        raw[:-8] = np.frombuffer(data_buffer, dtype=np.uint8)[first:last]
    # A word at every byte: reading 8 bytes from anywhere is one index.
    words = np.ndarray((len(raw) - 7,), dtype="<u8", buffer=raw.data, strides=(1,))
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    total = _mixed(lengths.astype(np.uint64))
    for row in np.flatnonzero(lengths > 8 * _WORDS_MAX):
        value = raw[starts[row] : starts[row] + lengths[row]].tobytes()
        total[row] = int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")
    active = np.flatnonzero((lengths > 0) & (lengths <= 8 * _WORDS_MAX))
    done = 0
    while len(active):
        left = lengths[active] - done
        found = words[starts[active] + done]
        short = left < 8
        found[short] &= (np.uint64(1) << (left[short].astype(np.uint64) * np.uint64(8))) - np.uint64(1)
        total[active] = _mixed(total[active] ^ found)
        active = active[left > 8]
        done += 8
    return total


def _mixed(words: Checksums) -> Checksums:
    """The finaliser of SplitMix64: every bit of the input changes half of the output's; one to one."""
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
