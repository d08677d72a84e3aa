"""A column of keys as Arrow holds it: how long its keys are, and its bytes in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.contract.unique_key import TEXT_BYTES_MAX

#: Beyond this a column does not hold keys.
KEY_BYTES_MAX = TEXT_BYTES_MAX


def _key_lengths(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each key of a binary, large_binary or fixed_size_binary array without nulls."""
    if pa.types.is_fixed_size_binary(keys.type):
        return np.full(len(keys), keys.type.byte_width, np.int64)
    return np.diff(key_offsets(keys))


def lengths_seen(arrays: Sequence[pa.Array]) -> list[int]:
    """Distinct lengths of all keys."""
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
    """One array; binary of more than 2 GiB becomes large_binary."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_binary(column.type) and column.nbytes > 2**31 - 2**24:
        column = column.cast(pa.large_binary())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def key_offsets(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Offsets of the array's keys in its data, one more than keys."""
    kind = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    buffer = keys.buffers()[1]
    if buffer is None or not len(keys):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(buffer, kind)[keys.offset : keys.offset + len(keys) + 1]
    return offsets.astype(np.int64)
