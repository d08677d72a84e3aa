"""Row groups of a Parquet file.

Each row group can be read and checked alone: this module finds the bytes and opens them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: Number of bytes at the end of a file after the metadata. They hold the metadata's length and the magic.
_END_BYTES = 8
_MAGIC = b"PAR1"

Range = tuple[int, int]


def group_ranges(metadata: pq.FileMetaData) -> tuple[Range, ...]:
    """Finds first byte and end of each row group.

    A row group begins with the first column chunk and ends with the last one.
    """
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = []
        for place in range(group.num_columns):
            column = group.column(place)
            pages = (column.dictionary_page_offset, column.data_page_offset)
            first = min(offset for offset in pages if offset is not None)
            chunks.append((first, first + column.total_compressed_size))
        found.append((min(first for first, _ in chunks), max(end for _, end in chunks)))
    return tuple(found)


def footer_range(file: Any, size: int) -> Range:
    """Finds first byte and end of a file's footer. The file can be read at any place.

    Raises ValueError if there is no footer.
    """
    end = file.read_at(_END_BYTES, size - _END_BYTES) if size > _END_BYTES else b""
    length = int.from_bytes(end[:4], "little")
    if not end.endswith(_MAGIC) or length + _END_BYTES > size:
        raise ValueError("it has no footer of Parquet")
    return size - _END_BYTES - length, size


def metadata_of(footer: bytes) -> pq.FileMetaData:
    """Parses a footer. Raises pyarrow.ArrowException, OSError."""
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer))


class HeldBytes:
    """File of which only some pieces are in memory. Reading other bytes fails."""

    closed = False

    def __init__(self, size: int, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Takes pieces of the file. The place of a piece is the place of its first byte in the file."""
        self._size = size
        self._pieces: Sequence[tuple[int, memoryview]] = [(first, memoryview(data)) for first, data in pieces]
        self._at = 0

    def read(self, length: int = -1) -> memoryview:
        """Reads bytes from the current place on. Raises OSError if no piece holds the bytes."""
        end = self._size if length < 0 else min(self._size, self._at + length)
        for first, data in self._pieces:
            if first <= self._at and end <= first + len(data):
                found = data[self._at - first : end - first]
                self._at = end
                return found
        raise OSError(f"its metadata points to bytes {self._at} to {end}, which are not of its row group")

    def seek(self, offset: int, whence: int = 0) -> int:
        """Moves as a file does."""
        self._at = (0, self._at, self._size)[whence] + offset
        return self._at

    def tell(self) -> int:
        """Returns the place."""
        return self._at

    def readable(self) -> bool:
        """True, as of a file."""
        return True

    def seekable(self) -> bool:
        """True, as of a file."""
        return True

    def close(self) -> None:
        """Does nothing."""
