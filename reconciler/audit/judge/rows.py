"""Rows of one table as numpy columns. Times are int64, names are codes of a vocabulary, and keys are words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.audit.judge.keys import Codes, Longs, Words

Flags = npt.NDArray[np.bool_]

#: Value that stands for NULL among integers.
NULL = np.int64(np.iinfo(np.int64).min)
#: Code of a NULL name.
NO_NAME = -1


class Vocabulary:
    """Numbers for the few names of a prefix: topics, groups, tags, states."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def number(self, name: str) -> int:
        """Returns the number of a name. A new name gets a new number."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._names)
            self._names.append(str(name))
        return found

    def name(self, number: int) -> str | None:
        """Returns the name of a number. Returns None for NO_NAME."""
        return None if number < 0 else self._names[number]

    def ranks(self) -> Longs:
        """Ranks the names: ranks[number] is the name's place in sorted order. The order of reading does not matter."""
        ranks = np.empty(len(self._names), np.int64)
        ranks[np.argsort(np.array(self._names, dtype=object), kind="stable")] = np.arange(len(self._names))
        return ranks

    def codes(self, column: pa.ChunkedArray) -> Codes:
        """Numbers a column of strings or dictionaries of strings. NULL becomes NO_NAME."""
        parts = [self._chunk(chunk) for chunk in column.chunks if len(chunk)]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def _chunk(self, chunk: pa.Array) -> Codes:
        if pa.types.is_null(chunk.type):
            return np.full(len(chunk), NO_NAME, np.int32)
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        numbers = [NO_NAME if value is None else self.number(value) for value in encoded.dictionary.to_pylist()]
        if len(numbers) == 1 and not encoded.null_count:
            return np.full(len(chunk), numbers[0], np.int32)
        indices = encoded.indices
        if encoded.indices.null_count:
            indices = indices.fill_null(len(numbers))
        codes: Codes = np.array([*numbers, NO_NAME], np.int32)[indices.to_numpy(zero_copy_only=False)]
        return codes


def longs(column: pa.ChunkedArray) -> Longs:
    """Converts integers to int64. A NULL becomes the constant NULL."""
    if pa.types.is_null(column.type):
        return np.full(len(column), NULL, np.int64)
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(int(NULL))
    found: Longs = column.to_numpy().astype(np.int64, copy=False)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of one table. All columns have the same length and never change."""

    words: Words
    names: Mapping[str, Codes]
    times: Mapping[str, Longs]
    #: Four words per digest, and a flag that says whether the row has a digest. None: digests are not compared.
    digests: tuple[Words, Flags] | None = None

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: npt.NDArray[np.intp] | None) -> Rows:
        """Takes the rows at these places. With None, takes all rows without a copy."""
        if rows is None:
            return self
        digests = None if self.digests is None else (self.digests[0][rows], self.digests[1][rows])
        return Rows(
            words=self.words[rows],
            names={name: column[rows] for name, column in self.names.items()},
            times={name: column[rows] for name, column in self.times.items()},
            digests=digests,
        )


def places_of(column: Codes, wanted: Iterable[int]) -> dict[int, npt.NDArray[np.intp] | None]:
    """Finds the sorted places of each wanted number in a column of names. None stands for all places.

    A number without a place is absent.
    """
    wanted = set(wanted)
    if not len(column):
        return {}
    if (column == column[0]).all():
        return {int(column[0]): None} if int(column[0]) in wanted else {}
    order = np.argsort(column, kind="stable")
    ordered = column[order]
    found: dict[int, npt.NDArray[np.intp] | None] = {}
    for number in wanted:
        first, last = np.searchsorted(ordered, [number, number + 1])
        if first < last:
            found[number] = order[first:last]
    return found
