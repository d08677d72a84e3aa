"""Looks messages up by key, like IndexService and IndexFile. The index has a hash of 31 bits, and times in whole
seconds.

Only the broker's loop uses this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.clock import Clock
from reconciler.embedded.layout import BrokerMessage, java_hash

MAX_RESULTS = 64  # MessageStoreConfig.maxMsgsNumBatch
_MIN_INT = -0x80000000


def key_hash(topic: str, key: str) -> int:
    """Hashes "topic#key" like IndexFile.indexKeyHashMethod. The result is the absolute value of the Java hash, and 0
    for Integer.MIN_VALUE."""
    value = java_hash(f"{topic}#{key}")
    return 0 if value == _MIN_INT else abs(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexHits:
    """The hits as log offsets in ascending order, and the newest indexed record. Without hits, both values of that
    record are 0."""

    offsets: tuple[int, ...]
    last_timestamp_ms: int
    last_physical_offset: int


class HashIndex:
    """An index from hashes to log offsets. An entry becomes visible ``lag_seconds()`` after its message was stored."""

    def __init__(self, clock: Clock, lag_seconds: Callable[[], float]) -> None:
        self._clock = clock
        self._lag_seconds = lag_seconds
        self._entries: dict[int, list[tuple[int, int]]] = {}
        self._pending: deque[tuple[float, list[int], int, int]] = deque()
        self._began_ms: int | None = None
        self._last = (0, 0)

    def add(self, hashes: list[int], physical_offset: int, store_timestamp_ms: int) -> None:
        """Indexes one record under its hashes."""
        if self._pending or self._lag_seconds() > 0:
            stored_at = self._clock.monotonic_seconds()
            self._pending.append((stored_at, hashes, physical_offset, store_timestamp_ms))
        else:
            self._insert(hashes, physical_offset, store_timestamp_ms)

    def _insert(self, hashes: list[int], physical_offset: int, store_timestamp_ms: int) -> None:
        if self._began_ms is None:
            self._began_ms = store_timestamp_ms
        # The time is stored as whole seconds since the beginning of the file, as in IndexFile.putKey.
        seconds = max(0, store_timestamp_ms - self._began_ms) // 1000
        entry = (physical_offset, self._began_ms + seconds * 1000)
        for value in hashes:
            entries = self._entries.get(value)
            if entries is None:
                self._entries[value] = [entry]
            else:
                entries.append(entry)
        self._last = (store_timestamp_ms, physical_offset)

    def drain(self) -> None:
        """Makes entries visible whose lag is over, in the order of the log."""
        if not self._pending:
            return
        newest = self._clock.monotonic_seconds() - self._lag_seconds()
        while self._pending and self._pending[0][0] <= newest:
            _, hashes, physical_offset, store_timestamp_ms = self._pending.popleft()
            self._insert(hashes, physical_offset, store_timestamp_ms)

    def find(self, topic: str, key: str, *, maximum: int, begin_ms: int, end_ms: int) -> IndexHits:
        """Returns the newest hits, at most 64. The oldest of them comes first. Hash collisions are included
        (DefaultMessageStore.queryMessage)."""
        self.drain()
        hits: list[int] = []
        for physical_offset, found_ms in reversed(self._entries.get(key_hash(topic, key), ())):
            if len(hits) >= min(maximum, MAX_RESULTS):
                break
            if begin_ms <= found_ms <= end_ms:
                hits.append(physical_offset)
        if not hits:
            return IndexHits(offsets=(), last_timestamp_ms=0, last_physical_offset=0)
        return IndexHits(
            offsets=tuple(sorted(hits)), last_timestamp_ms=self._last[0], last_physical_offset=self._last[1]
        )

    def cut(self, physical_offset: int) -> None:
        """Forgets every record from this offset on, because the log lost them."""
        while self._pending and self._pending[-1][2] >= physical_offset:
            self._pending.pop()
        for value in list(self._entries):
            kept = [entry for entry in self._entries[value] if entry[0] < physical_offset]
            if kept:
                self._entries[value] = kept
            else:
                del self._entries[value]

    def forget(self, hashes: list[int], physical_offset: int) -> None:
        """Forgets the oldest record, which retention has deleted."""
        for value in hashes:
            entries = self._entries.get(value)
            while entries and entries[0][0] <= physical_offset:
                del entries[0]
            if entries is not None and not entries:
                del self._entries[value]


def index_keys(message: BrokerMessage, *, unique_key: bool) -> list[int]:
    """Returns the hashes of UNIQ_KEY and of each part of KEYS, under which IndexService.buildIndex stores a message."""
    properties = message.properties
    hashes = []
    if unique_key and properties.get("UNIQ_KEY"):
        hashes.append(key_hash(message.topic, properties["UNIQ_KEY"]))
    keys = properties.get("KEYS")
    if keys:
        hashes += [key_hash(message.topic, key) for key in keys.split(" ") if key]
    return hashes
