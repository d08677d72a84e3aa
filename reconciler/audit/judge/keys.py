"""Gives keys of any length and byte value dense integer codes. No key becomes a Python object.

A key becomes `width` 64-bit words, padded with zeros. If lengths of keys differ, one more word has the length, because
a trailing NUL is part of a key. Words are looked up in an open-addressing table of int32. Every match compares all
words, so colliding hashes cost time and never change an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.audit.evidence.key_columns import crc32_of, key_offsets
from reconciler.contract.history_row import PREFIXES

Words = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

#: Number of slots of the table per key. With so many slots collisions stay rare, and the table stays in the cache.
_SLOTS_A_KEY = 5
_ODD = tuple(
    np.uint64(value)
    for value in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
)


class KeyLayout:
    """Layout of keys: number of words of a key, and whether a word has the key's length."""

    def __init__(self, lengths: Sequence[int]) -> None:
        """`lengths` are the distinct lengths of keys in all arrays that will be encoded."""
        self.lengths = sorted(set(lengths))
        self.padded = -(-max(self.lengths, default=8) // 8)
        self.width = self.padded + (len(self.lengths) > 1)

    def words(self, keys: pa.Array) -> Words:
        """Encodes a binary array as (n, width) words.

        The array has no nulls, and each key has a length of the layout.
        """
        count = len(keys)
        if pa.types.is_fixed_size_binary(keys.type):
            length = keys.type.byte_width
            data = np.frombuffer(keys.buffers()[1], np.uint8)[keys.offset * length : (keys.offset + count) * length]
            return self._same_length(data, count, length)
        offsets = key_offsets(keys)
        buffer = keys.buffers()[2]
        data = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
        if len(self.lengths) <= 1:
            return self._same_length(data[offsets[0] : offsets[-1]], count, self.lengths[0] if self.lengths else 0)
        lengths = np.diff(offsets)
        padded = np.zeros((count, self.width * 8), np.uint8)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            padded[rows, :length] = data[offsets[rows][:, None] + np.arange(length)]
        words = padded.view(np.uint64)
        words[:, -1] = lengths
        return words

    def _same_length(self, data: npt.NDArray[np.uint8], count: int, length: int) -> Words:
        if length == self.width * 8:
            return np.ascontiguousarray(data).view(np.uint64).reshape(count, self.width)
        padded = np.zeros((count, self.width * 8), np.uint8)
        padded[:, :length] = data.reshape(count, length)
        words = padded.view(np.uint64)
        if len(self.lengths) > 1:
            words[:, -1] = length
        return words

    def ordered(self, words: Words) -> list[Words]:
        """Makes columns that sort like the bytes of the keys.

        The most significant column comes first. np.lexsort needs them reversed.
        """
        columns = [words[:, place].byteswap() for place in range(self.padded)]
        return columns + [words[:, place] for place in range(self.padded, self.width)]

    def key_bytes(self, words: Words) -> list[bytes]:
        """Decodes the keys of rows of words."""
        rows = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), self.width * 8)
        if len(self.lengths) <= 1:
            length = self.lengths[0] if self.lengths else 0
            return [row[:length].tobytes() for row in rows]
        return [row[: int(length)].tobytes() for row, length in zip(rows, words[:, -1], strict=True)]


def hash_of(words: Words) -> Words:
    """Computes a mixed 64-bit hash of each row. Mixing is needed because real keys share most of their bytes."""
    mixed = words[:, 0] * _ODD[0]
    for place in range(1, words.shape[1]):
        mixed ^= mixed >> np.uint64(29)
        mixed += words[:, place]
        mixed *= _ODD[place % len(_ODD)]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _ODD[-1]
    mixed ^= mixed >> np.uint64(29)
    return mixed


def prefixes_of_words(layout: KeyLayout, words: Words) -> npt.NDArray[np.uint32]:
    """Computes the partition of each key (contract/history_row.py)."""
    bytes_of = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), layout.width * 8)
    found = np.empty(len(words), np.uint32)
    several = len(layout.lengths) > 1
    for length in layout.lengths:
        rows = np.flatnonzero(words[:, -1] == np.uint64(length)) if several else np.arange(len(words))
        found[rows] = crc32_of(bytes_of[rows, :length]) % PREFIXES
    return found


class KeyCodes:
    """Table that numbers distinct keys from 0, in the order in which new keys come."""

    def __init__(self, width: int) -> None:
        self._stored: Words = np.empty((0, width), np.uint64)
        self._bits = 0
        self._table: Codes = np.empty(0, np.int32)

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def words(self) -> Words:
        """Words of the keys: (number of keys, width)."""
        return self._stored

    def add(self, words: Words) -> Codes:
        """Returns the number of each row's key. New keys get new numbers."""
        hashes = hash_of(words)
        codes = self._find(words, hashes)
        missing = np.flatnonzero(codes < 0)
        if len(missing):
            if len(missing) == len(words):
                codes = self._insert(words, hashes)
            else:
                codes[missing] = self._insert(words[missing], hashes[missing])
        return codes

    def _slots(self, hashes: Words) -> Longs:
        return (hashes >> np.uint64(64 - self._bits)).astype(np.int64)

    def _find(self, words: Words, hashes: Words) -> Codes:
        """Finds the numbers of known keys. -1: the key is unknown."""
        codes = np.full(len(words), -1, np.int32)
        if not len(self._stored) or not len(words):
            return codes
        slots = self._slots(hashes)
        there = self._table[slots]
        same = _equal(self._stored, there, words)
        np.copyto(codes, there, where=same)
        rows = np.flatnonzero(~same & (there >= 0))
        slots = slots[rows]
        while len(rows):
            slots = (slots + 1) & (len(self._table) - 1)
            there = self._table[slots]
            same = _equal(self._stored, there, words[rows])
            codes[rows[same]] = there[same]
            on = ~same & (there >= 0)
            rows, slots = rows[on], slots[on]
        return codes

    def _insert(self, words: Words, hashes: Words) -> Codes:
        """Numbers rows whose keys are all unknown. Rows may repeat a key."""
        known = len(self._stored)
        self._grow(known + len(words))
        # Until the winning row of a repeated key is known, the table holds `known` plus the row's place.
        provisional = np.arange(known, known + len(words), dtype=np.int32)
        codes = provisional.copy()
        rows, slots = np.arange(len(words)), self._slots(hashes)
        won: list[Longs] = []
        while len(rows):
            free = self._table[slots] < 0
            self._table[slots[free]] = provisional[rows[free]]
            there = self._table[slots]
            mine = there == provisional[rows]
            won.append(slots[mine])
            lost = np.flatnonzero(~mine)
            rows, slots, there = rows[lost], slots[lost], there[lost]
            same = _equal(words, there - known, words[rows])
            codes[rows[same]] = there[same]
            rows, slots = rows[~same], (slots[~same] + 1) & (len(self._table) - 1)
        if sum(map(len, won)) < len(words):
            winners = np.concatenate(won)
            order = np.sort(self._table[winners])
            dense = np.empty(len(words), np.int32)
            dense[order - known] = np.arange(known, known + len(order), dtype=np.int32)
            self._table[winners] = dense[self._table[winners] - known]
            codes = dense[codes - known]
            words = words[order - known]
        self._stored = np.concatenate([self._stored, words])
        return codes

    def _grow(self, keys: int) -> None:
        """Makes room. A larger table takes over the known keys."""
        bits = max(8, (keys * _SLOTS_A_KEY).bit_length())
        if bits <= self._bits:
            return
        self._bits = bits
        self._table = np.full(1 << bits, -1, np.int32)
        codes = np.arange(len(self._stored), dtype=np.int32)
        slots = self._slots(hash_of(self._stored))
        while len(codes):
            free = self._table[slots] < 0
            self._table[slots[free]] = codes[free]
            rest = self._table[slots] != codes
            codes, slots = codes[rest], (slots[rest] + 1) & (len(self._table) - 1)


def _equal(stored: Words, places: Codes, words: Words) -> npt.NDArray[np.bool_]:
    """Compares stored[places[i]] with words[i]. False for a place below 0."""
    same = places >= 0
    safe = np.maximum(places, 0)
    for column in range(words.shape[1]):
        same &= stored[safe, column] == words[:, column]
    return same
