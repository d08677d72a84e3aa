"""Finds the outcomes of ended halves. A copy in the real topic names each committed half, and nothing names a half that
was rolled back. The functions are pure.

In every version, a committed copy has the commit-log offset of the half copy that its END named. So one pass over the
real topics is enough. The places of halves rise with their queue offsets, and a half costs 21 bytes of memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.halves.ended import OffsetBits

_END = b"\x02"
_TOPIC, _GROUP, _KEY = b"\x02REAL_TOPIC\x01", b"\x02PGROUP\x01", b"\x02UNIQ_KEY\x01"
_ASKED, _IMMUNE = b"TRANSACTION_CHECK_TIMES\x01", b"TRAN_PREPARED_QUEUE_OFFSET\x01"


@dataclass(slots=True)
class HalfOutcomes:
    """Numbers of halves of one topic and producer group. A half that a check has put back counts once."""

    #: Number of halves of the requested time. Copies of halves from before this time do not count.
    halves: int = 0
    committed: int = 0
    #: Number of halves that were ended without a message in the topic. Only the business's database shows whether a
    #: rollback was right.
    rolled_back: int = 0
    #: Number of messages beyond the first message of each half. Each further message was delivered again.
    committed_again: int = 0

    def add(self, other: HalfOutcomes) -> None:
        """Adds the numbers of another broker."""
        self.halves += other.halves
        self.committed += other.committed
        self.rolled_back += other.rolled_back
        self.committed_again += other.committed_again


def property_of(properties: bytes, name: bytes) -> bytes:
    """Returns the value of a property in a stored record. `name` includes the separator before and after the name.
    Returns b"" if the record has no such property."""
    found = properties.find(name)
    if found < 0 and not properties.startswith(name[1:]):
        return b""
    begin = found + len(name)
    end = properties.find(_END, begin)
    return properties[begin:] if end < 0 else properties[begin:end]


class HalfPlaces:
    """Halves in the order of their queue. Each half has the number of committed copies that name it."""

    def __init__(self) -> None:
        self._begin = 0
        self._places = array("q")
        self._groups = array("I")
        #: Hashes of the halves' keys. Two copies of one half have the same hash.
        self._hashes = array("q")
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        #: Number of messages of each half copy. A number above 255 is stored as 255.
        self._committed = bytearray()
        self._put_back: set[int] = set()

    @property
    def topics(self) -> set[str]:
        """The topics of all halves."""
        return {topic.decode("utf-8", "replace") for topic, _ in self._numbers}

    def add(self, queue_offset: int, place: int, properties: bytes) -> None:
        """Adds the next half of the queue. Halves that retention deleted before the first read half are not counted."""
        if not self._places:
            self._begin = queue_offset
        if queue_offset != self._begin + len(self._places):
            return
        pair = property_of(properties, _TOPIC), property_of(properties, _GROUP)
        hashed = hash(property_of(properties, _KEY) or place)
        if _ASKED in properties or _IMMUNE in properties:
            self._put_back.add(len(self._places))
        self._places.append(place)
        self._groups.append(self._numbers.setdefault(pair, len(self._numbers)))
        self._hashes.append(hashed)
        self._committed.append(0)

    def add_committed(self, place: int) -> None:
        """Counts a message that names the half at this place of the log. Does nothing if no half was read from this
        place."""
        index = bisect_left(self._places, place)
        if index < len(self._places) and self._places[index] == place and self._committed[index] < 255:
            self._committed[index] += 1

    def outcomes(self, ended: OffsetBits | None) -> dict[tuple[str, str], HalfOutcomes]:
        """Returns topic and producer group -> outcomes of their halves. Pairs without halves are left out. If `ended`
        is None, nobody knows which halves were ended, and none counts as rolled back."""
        found = [HalfOutcomes() for _ in self._numbers]
        for group, _, messages, is_ended in self._each(ended):
            _count(found[group], messages, is_ended=is_ended)
        pairs = [(topic.decode("utf-8", "replace"), group.decode("utf-8", "replace")) for topic, group in self._numbers]
        return {pair: outcome for pair, outcome in zip(pairs, found, strict=True) if outcome.halves}

    def ended_halves(self, ended: OffsetBits | None, topic: str) -> tuple[list[int], list[int]]:
        """Returns the queue offsets of a topic's committed halves, and of its rolled-back halves. For a half that was
        put back, the offset is that of its newest copy. Each list ends with its newest half."""
        name = topic.encode()
        groups = {number for (of, _), number in self._numbers.items() if of == name}
        committed: list[int] = []
        rolled_back: list[int] = []
        for group, newest, messages, is_ended in self._each(ended):
            if group in groups and (messages or is_ended):
                (committed if messages else rolled_back).append(self._begin + newest)
        return sorted(committed), sorted(rolled_back)

    def _each(self, ended: OffsetBits | None) -> Iterator[tuple[int, int, int, bool]]:
        """Yields four values for each half: its group, its newest copy, its number of messages, and whether it was
        ended without a message."""
        several = {self._hashes[index]: _Copies() for index in self._put_back}
        for index, (group, hashed, messages) in enumerate(
            zip(self._groups, self._hashes, self._committed, strict=True)
        ):
            is_ended = ended is not None and not messages and self._begin + index in ended
            copies = several.get(hashed)
            if copies is None:
                yield group, index, messages, is_ended
            else:
                copies.group, copies.newest = group, index
                copies.messages += messages
                copies.is_ended |= is_ended
                copies.has_first |= index not in self._put_back
        for copies in several.values():
            if copies.has_first:
                yield copies.group, copies.newest, copies.messages, copies.is_ended


@dataclass(slots=True)
class _Copies:
    """All copies of a half that a check has put back."""

    group: int = 0
    #: Number of the newest copy, counted from the first half that was read.
    newest: int = 0
    messages: int = 0
    is_ended: bool = False
    #: False if the first copy was sent before the requested time.
    has_first: bool = False


def _count(outcome: HalfOutcomes, messages: int, *, is_ended: bool) -> None:
    outcome.halves += 1
    if messages:
        outcome.committed += 1
        outcome.committed_again += messages - 1
    elif is_ended:
        outcome.rolled_back += 1
