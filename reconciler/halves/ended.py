"""Sets of ended halves. OffsetBits has one bit for each offset, in blocks that are created when they are needed. Places
has eight bytes for each place in the log."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.wire.properties import whole_number

#: A block has 2 ** _BLOCK_BITS offsets, and takes 8 KiB.
_BLOCK_BITS = 16
_IN_BLOCK = (1 << _BLOCK_BITS) - 1
#: TransactionalMessageUtil.REMOVE_TAG.
ENDED_TAG = "d"


class OffsetBits:
    """A set of offsets of one queue. Offsets outside the bounds of the queue are counted but not stored, so that they
    cost no memory."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self._blocks: dict[int, bytearray] = {}
        self.strangers = 0

    def grow(self, end: int) -> None:
        """Extends the set to a later end of the queue."""
        self._end = max(self._end, end)

    def add(self, offset: int) -> None:
        """Records that the half at the offset was ended."""
        if not self._begin <= offset < self._end:
            self.strangers += 1
            return
        block = self._blocks.get(offset >> _BLOCK_BITS)
        if block is None:
            block = self._blocks[offset >> _BLOCK_BITS] = bytearray(1 << _BLOCK_BITS - 3)
        place = offset & _IN_BLOCK
        block[place >> 3] |= 1 << (place & 7)

    def __contains__(self, offset: int) -> bool:
        block = self._blocks.get(offset >> _BLOCK_BITS)
        place = offset & _IN_BLOCK
        return block is not None and bool(block[place >> 3] & 1 << (place & 7))


class Places:
    """A set of places in a log. Each place takes eight bytes."""

    def __init__(self, places: Iterable[int]) -> None:
        self._sorted = array("q", sorted(array("q", places)))

    def __contains__(self, place: int) -> bool:
        index = bisect_left(self._sorted, place)
        return index < len(self._sorted) and self._sorted[index] == place

    def __iter__(self) -> Iterator[int]:
        return iter(self._sorted)


def ended_offsets(body: bytes, tags: str | None) -> list[int]:
    """Returns the queue offsets of halves that one record of the OP topic names. The body is "17", or "12,13,17," from
    5.1 on.

    Raises ProtocolViolation for any other content. A record with another tag names no half.
    """
    if tags != ENDED_TAG:
        return []
    found = [whole_number(text) for text in body.decode("ascii", "replace").split(",") if text]
    offsets = [number for number in found if number is not None]
    if len(offsets) != len(found):
        raise ProtocolViolation(f"an OP record names no offset: {body[:40]!r}")
    return offsets
