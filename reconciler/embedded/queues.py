"""Consume queues, which have the places of their messages in the log. Only the broker's loop uses this module."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

_TRIM_AT = 4096  # dead entries at the head of a list before it is cut


class ConsumeQueue:
    """The entries (log offset, size, tags code) of one queue. A queue offset is the position of an entry."""

    __slots__ = ("_dead", "_entries", "_first")

    def __init__(self) -> None:
        self._first = 0  # queue offset of _entries[0]
        self._dead = 0  # entries at the head without a record
        self._entries: list[tuple[int, int, int]] = []

    @property
    def max_offset(self) -> int:
        """The offset of the next message."""
        return self._first + len(self._entries)

    @property
    def min_offset(self) -> int:
        """The oldest readable offset."""
        return self._first + self._dead

    def append(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Adds one message."""
        self._entries.append((physical_offset, size, tags_code))

    def skip_to(self, queue_offset: int) -> None:
        """Records during recovery that everything below this offset was deleted."""
        if queue_offset > self.max_offset:
            self._first, self._dead, self._entries = queue_offset, 0, []

    def entry(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Returns (log offset, size, tags code). Returns None for an offset outside of [min_offset, max_offset)."""
        position = queue_offset - self._first
        if self._dead <= position < len(self._entries):
            return self._entries[position]
        return None

    def forget_below(self, physical_offset: int) -> None:
        """Drops entries whose records were deleted."""
        entries, dead = self._entries, self._dead
        while dead < len(entries) and entries[dead][0] < physical_offset:
            dead += 1
        if dead > _TRIM_AT or dead == len(entries):
            del entries[:dead]
            self._first += dead
            dead = 0
        self._dead = dead

    def cut(self, physical_offset: int) -> None:
        """Drops entries whose records the log lost. New messages get the queue offsets of the dropped entries."""
        while self._entries and self._entries[-1][0] >= physical_offset:
            self._entries.pop()
        self._dead = min(self._dead, len(self._entries))

    def offset_by_time(self, timestamp_ms: int, store_time: Callable[[int], int], *, nearest: bool) -> int:
        """Returns the first offset that was stored at or after a time. With ``nearest``, returns the closer neighbour,
        as in 4.x."""
        low = bisect_left(self._entries, timestamp_ms, lo=self._dead, key=lambda entry: store_time(entry[0]))
        if not nearest or low in (self._dead, len(self._entries)):
            if nearest and low == len(self._entries):
                low = max(self._dead, low - 1)  # never past the end (ConsumeQueue.getOffsetInQueueByTime)
            return self._first + low
        after = store_time(self._entries[low][0]) - timestamp_ms
        before = timestamp_ms - store_time(self._entries[low - 1][0])
        return self._first + (low if before > after or after == 0 else low - 1)


class QueueTable:
    """All consume queues. A queue is made at its first use."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Returns the queue. Makes the queue if it is missing."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            found = self._queues[topic, queue_id] = ConsumeQueue()
        return found

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Returns the queue. Returns None if the queue was never used."""
        return self._queues.get((topic, queue_id))

    def drop_topic(self, topic: str) -> None:
        """Drops the queues of a topic (DELETE_TOPIC_IN_BROKER). New queues of this topic begin at offset 0."""
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]

    def __iter__(self) -> Iterator[tuple[str, int, ConsumeQueue]]:
        for (topic, queue_id), queue in self._queues.items():
            yield topic, queue_id, queue
