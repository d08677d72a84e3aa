"""Noted halves, as a part of the ledger in memory (memory.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from reconciler.policy.ports.ledger import NotedHalf
from reconciler.testing.memory_rounds import MemoryLedgerRows


class MemoryNotedHalves:
    """Noted halves over a dictionary."""

    def __init__(self, rows: MemoryLedgerRows) -> None:
        self._rows = rows
        self._noted: dict[tuple[str, str, str, str], NotedHalf] = {}

    def note(self, environment: str, topic: str, halves: Sequence[NotedHalf], *, replaces: bool = False) -> bool:
        """Stores the halves as noted. Always returns True."""
        noted = {(environment, topic, one.unique_key, one.broker): one for one in halves}
        with self._rows.lock:
            self._noted = self._noted | noted if replaces else noted | self._noted
        return True

    def of_keys(
        self, environment: str, topic: str, key_digests: Collection[bytes]
    ) -> Mapping[bytes, Sequence[NotedHalf]] | None:
        """Returns the noted halves of each key."""
        with self._rows.lock:
            noted = [one for place, one in self._noted.items() if place[:2] == (environment, topic)]
        return {digest: [one for one in noted if one.key_digest == digest] for digest in key_digests}

    def noted(self, environment: str, topic: str, unique_keys: Collection[str]) -> Collection[str]:
        """Returns the keys of noted halves."""
        with self._rows.lock:
            noted = {place[2] for place in self._noted if place[:2] == (environment, topic)}
        return noted & set(unique_keys)
