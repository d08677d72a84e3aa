"""Random keys of one prefix, and CRC-32 over columns of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from reconciler.contract.unique_key import TEXT_BYTES_MIN, key_of

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]

#: Keys of this length are text, of a client that writes 32 digits in lower case; shorter ones are upper-case digits.
TEXT_BYTES = KEY_BYTES_MAX = TEXT_BYTES_MIN
#: So many keys of every length and prefix end with a zero byte, and so many pairs differ in one zero byte at the end.
TRAILING_ZEROS = 4


def _table(bits: int) -> Words:
    table = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_BYTE = _table(8)
_PAIR = _table(16)
_LOWER = np.frombuffer(b"0123456789abcdef", np.uint8)
_HEX = np.array([first << 0 | second << 8 for first in b"0123456789ABCDEF" for second in b"0123456789ABCDEF"], "<u4")
#: Bytes by the lowest six bits of their table entry: four each.
_BY_LOW = np.argsort(_BYTE & 63, kind="stable").astype(np.uint32).reshape(64, 4)


def _register(keys: Bytes, length: int) -> Words:
    register = np.full(len(keys), 0xFFFFFFFF, np.uint32)
    for column in range(length):
        register = _BYTE[(register ^ keys[:, column]) & 255] ^ (register >> np.uint32(8))
    return register


def prefixes_of(keys: Bytes, length: int) -> Words:
    """CRC-32 modulo 64 of the first `length` bytes of each row."""
    return ~_register(keys, length) & np.uint32(63)


def hex_crc(keys: Bytes, lengths: NDArray[np.int64]) -> Words:
    """CRC-32 of the upper-case hex text of each key that is no text."""
    register = np.full(len(keys), 0xFFFFFFFF, np.uint32)
    for column in range(int(lengths.max(initial=0))):
        text = _HEX[keys[:, column]]
        grown = _PAIR[(register ^ text) & 0xFFFF] ^ (register >> 16)
        register = np.where(column < lengths, grown, register)
    return ~register


def _drawn(rng: np.random.Generator, prefix: int, count: int, length: int) -> Bytes:
    keys = np.zeros((count, KEY_BYTES_MAX), np.uint8)
    keys[:, :length] = np.frombuffer(rng.bytes(count * length), np.uint8).reshape(count, length)
    register = _register(keys, length - 1)
    # The last byte decides the lowest six bits: crc = ~(table[low byte ^ last] ^ register >> 8).
    wanted = (np.uint32(prefix ^ 63) ^ (register >> 8)) & 63
    entry = _BY_LOW[wanted, rng.integers(0, 4, count)]
    keys[:, length - 1] = (entry ^ register) & 255
    return keys


def _texts(rng: np.random.Generator, prefix: int, count: int) -> Bytes:
    found = np.zeros((0, KEY_BYTES_MAX), np.uint8)
    while len(found) < count:
        keys = np.zeros((8_192, KEY_BYTES_MAX), np.uint8)
        keys[:, 1:] = _LOWER[rng.integers(0, 16, (8_192, TEXT_BYTES - 1))]
        found = np.concatenate([found, keys[prefixes_of(keys, TEXT_BYTES) == prefix]])
    return found[:count]


def _ending_with_zero(rng: np.random.Generator, prefix: int, count: int, length: int) -> Bytes:
    found = np.zeros((0, KEY_BYTES_MAX), np.uint8)
    while len(found) < count:
        keys = np.zeros((1_024, KEY_BYTES_MAX), np.uint8)
        keys[:, : length - 1] = np.frombuffer(rng.bytes(1_024 * (length - 1)), np.uint8).reshape(1_024, length - 1)
        found = np.concatenate([found, keys[prefixes_of(keys, length) == prefix]])
    return found[:count]


class PrefixKeys:
    """`count` different keys of a prefix; `matrix` is (count, 33), zero beyond each key's length."""

    def __init__(self, rng: np.random.Generator, prefix: int, count: int, lengths: tuple[int, ...]) -> None:
        self.lengths = np.resize(np.array(lengths, np.int64), count)
        self.matrix = np.zeros((count, KEY_BYTES_MAX), np.uint8)
        for length in sorted(set(lengths)):
            at = np.flatnonzero(self.lengths == length)
            if length == TEXT_BYTES:
                self.matrix[at] = _texts(rng, prefix, len(at))
                continue
            self.matrix[at] = _drawn(rng, prefix, len(at), length)
            special = at[:TRAILING_ZEROS]
            self.matrix[special] = _ending_with_zero(rng, prefix, len(special), length)
        for length in sorted(set(lengths)):
            if length + 1 in lengths and length + 1 != TEXT_BYTES:
                self._twin(rng, prefix, length)
        del rng

    def _twin(self, rng: np.random.Generator, prefix: int, length: int) -> None:
        short = np.flatnonzero(self.lengths == length)[TRAILING_ZEROS : 2 * TRAILING_ZEROS]
        long = np.flatnonzero(self.lengths == length + 1)[: len(short)]
        short = short[: len(long)]
        found = np.zeros((0, KEY_BYTES_MAX), np.uint8)
        while len(found) < len(short):
            keys = _drawn(rng, prefix, 1_024, length)
            found = np.concatenate([found, keys[prefixes_of(keys, length + 1) == prefix]])
        self.matrix[short] = self.matrix[long] = found[: len(short)]

    def __len__(self) -> int:
        return len(self.lengths)

    def shards(self, shards: int) -> NDArray[np.int64]:
        """Shard of each key: CRC-32 of its text modulo `shards` (contract/unique_key.py)."""
        of_text = ~_register(self.matrix[:, 1:], TEXT_BYTES - 1)
        crc = np.where(self.lengths == TEXT_BYTES, of_text, hex_crc(self.matrix, self.lengths))
        return (crc % shards).astype(np.int64)

    def column(self, rows: NDArray[np.int64]) -> pa.Array:
        """Arrow binary of the keys at `rows`."""
        lengths = self.lengths[rows]
        width = int(lengths.max(initial=0))
        picked = self.matrix[rows, :width]
        if len(rows) and int(lengths.min()) < width:
            data = picked[np.arange(width)[None, :] < lengths[:, None]]
        else:
            data = np.ascontiguousarray(picked).reshape(-1)
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def texts(self, rows: NDArray[np.int64]) -> list[str]:
        """The keys at `rows`."""
        return [
            key_of(self.matrix[row, :length].tobytes())
            for row, length in zip(rows.tolist(), self.lengths[rows].tolist(), strict=True)
        ]
