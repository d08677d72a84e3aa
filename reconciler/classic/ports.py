"""What the original algorithm asks of the world (mode = "classic"), as it was written: no epoch, no claim, no ledger.

Ports raise TransientError only. `tests/simulation` and reconciler/classic implement them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.subscription import Subscription
from reconciler.policy.evidence import Lookup, StoredMessage
from reconciler.policy.ports.announcing import AnnouncementQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicBatch:
    """Announcements of one pull."""

    queue: AnnouncementQueue
    unique_keys: tuple[str, ...]
    #: What the group's offset at the broker becomes when the batch is acknowledged.
    next_offset: int


class ClassicAnnouncements(Protocol):
    """The unique-key topic as an ordinary consumer group reads it: its offset lies at the broker."""

    def pull(self, subscription: Subscription) -> Sequence[ClassicBatch]:
        """Batches after the group's stored offsets, at most one a queue; empty if there is nothing new."""
        ...

    def acknowledge(self, subscription: Subscription, batch: ClassicBatch) -> None:
        """Moves the group's offset past the batch."""
        ...


class ClassicSets(Protocol):
    """The pair of Redis sets of one subscription. Raises RedisAway."""

    def add_announced(self, subscription: Subscription, unique_keys: Sequence[str]) -> None:
        """SADD half."""
        ...

    def take_difference(self, subscription: Subscription) -> list[str]:
        """MULTI; SDIFF half commit; DEL half commit; EXEC. The answer is all that remembers the keys afterwards."""
        ...


class ClassicBroker(Protocol):
    """viewMessage. Raises TransientError."""

    def view_message(self, topic: str, unique_key: str) -> Lookup[StoredMessage]:
        """Whatever is stored under the real topic with the key, prepared or committed."""
        ...


class ClassicBusiness(Protocol):
    """The consumer's business code. Raises TransientError."""

    def replay(self, subscription: Subscription, message: StoredMessage) -> None:
        """Hands the message to the group's handler, which dedupes by the unique key."""
        ...
