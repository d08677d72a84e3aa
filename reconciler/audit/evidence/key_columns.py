"""Keys of an Arrow column: lengths of the keys, and the bytes of all keys in one piece."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.contract.history_row import PREFIXES
from reconciler.contract.unique_key import TEXT_BYTES_MAX

Bytes = npt.NDArray[np.uint8]

#: Length of the longest key.
KEY_BYTES_MAX = TEXT_BYTES_MAX


def _key_lengths(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Counts the bytes of each key of a binary, large_binary or fixed_size_binary array without nulls."""
    if pa.types.is_fixed_size_binary(keys.type):
        return np.full(len(keys), keys.type.byte_width, np.int64)
    return np.diff(key_offsets(keys))


def lengths_seen(arrays: Sequence[pa.Array]) -> list[int]:
    """Lists the distinct lengths of all keys."""
    found: set[int] = set()
    for keys in arrays:
        if pa.types.is_fixed_size_binary(keys.type):
            found.add(keys.type.byte_width)
        elif len(keys):
            lengths = _key_lengths(keys)
            shortest, longest = int(lengths.min()), int(lengths.max())
            found |= {shortest} if shortest == longest else set(np.unique(lengths).tolist())
    return sorted(found)


def contiguous(column: pa.ChunkedArray) -> pa.Array:
    """Joins a column to one array. Binary of more than 2 GiB becomes large_binary."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_binary(column.type) and column.nbytes > 2**31 - 2**24:
        column = column.cast(pa.large_binary())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def key_offsets(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Reads the offsets of the keys in the array's data. The last offset is the end of the last key."""
    kind = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    buffer = keys.buffers()[1]
    if buffer is None or not len(keys):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(buffer, kind)[keys.offset : keys.offset + len(keys) + 1]
    return offsets.astype(np.int64)


def by_length(keys: pa.Array) -> Iterator[tuple[npt.NDArray[np.intp], Bytes]]:
    """Yields for each length the places of the keys or texts of that length, and their bytes as a matrix.

    The matrix has one row per key.
    """
    offsets, buffer = key_offsets(keys), keys.buffers()[2]
    lengths, data = np.diff(offsets), np.frombuffer(buffer or b"", np.uint8)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        if len(rows) == len(keys):
            yield rows, data[offsets[0] : offsets[-1]].reshape(len(rows), length)
        else:
            yield rows, data[offsets[rows][:, None] + np.arange(length)]


def prefixes_of(keys: pa.Array) -> npt.NDArray[np.int8]:
    """Computes the partition of each key (contract/history_row.py)."""
    found = np.empty(len(keys), np.int8)
    for rows, data in by_length(keys):
        found[rows] = crc32_of(data) % PREFIXES
    return found


def crc32_of(keys: Bytes) -> npt.NDArray[np.uint32]:
    """Computes zlib.crc32 of each row.

    The computation starts from the CRC of zeros, and adds the change that each byte makes.
    """
    count, length = keys.shape
    found = np.full(count, zlib.crc32(bytes(length)), np.uint32)
    for place in range(length):
        found ^= _CHANGES[length - 1 - place].take(keys[:, place])
    return found


def _changes() -> npt.NDArray[np.uint32]:
    """Computes how each byte changes the CRC, by distance from the end of the key and by value of the byte."""
    found = np.zeros((KEY_BYTES_MAX, 256), np.uint32)
    found[0] = [zlib.crc32(bytes([value])) ^ zlib.crc32(b"\0") for value in range(256)]
    for distance in range(1, KEY_BYTES_MAX):
        found[distance] = found[0, found[distance - 1] & 0xFF] ^ (found[distance - 1] >> 8)
    return found


_CHANGES = _changes()
