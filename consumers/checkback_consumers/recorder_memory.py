"""What a recorder holds in memory: the batch that fills, and keys that Redis did not take, in the order they came.

SADD may be repeated, also when the first one was executed and only its answer was lost. A late one does no harm either:
it names the commit set, never one of its older generations, so it adds to whichever is the youngest when it arrives.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """Keys of one topic, and the monotonic second from which on they are not tried any more."""

    topic: str
    keys: Sequence[str]
    until_seconds: float


class Batch:
    """Keys that travel together. Confined by its recorder's lock until it is closed."""

    def __init__(self, opened_at: float) -> None:
        self.opened_at = opened_at
        self.keys: dict[str, list[str]] = {}
        self.count = 0
        self.has_waiter = False
        #: Redis was away when it was opened: nobody waits for it.
        self.is_held = False
        #: Set after its first try.
        self.done = threading.Event()
        #: Topics whose keys were not recorded by that.
        self.missed_topics: set[str] = set()


class KeptKeys:
    """A queue that knows its size. Confined by its owner's lock."""

    def __init__(self) -> None:
        self._queue: deque[Kept] = deque()
        #: Keys of all entries.
        self.count = 0

    def add(self, kept: Kept) -> None:
        """Behind the others."""
        self._queue.append(kept)
        self.count += len(kept.keys)

    def oldest(self, keys_max: int) -> list[Kept]:
        """The oldest entry, and those that follow it and are of its topic, up to so many keys together."""
        found: list[Kept] = []
        total = 0
        for kept in self._queue:
            total += len(kept.keys)
            if found and (kept.topic != found[0].topic or total > keys_max):
                break
            found.append(kept)
        return found

    def remove(self, entries: int) -> None:
        """The oldest ones, as oldest() gave them."""
        for _ in range(entries):
            self.count -= len(self._queue.popleft().keys)

    def take_expired(self, now_seconds: float) -> list[Kept]:
        """Removes what is not tried any more; an entry behind a younger one waits for that one."""
        expired: list[Kept] = []
        while self._queue and self._queue[0].until_seconds <= now_seconds:
            expired.append(self._queue.popleft())
            self.count -= len(expired[-1].keys)
        return expired
