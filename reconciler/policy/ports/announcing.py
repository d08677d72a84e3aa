"""Step 6: announcements into half sets, consumed keys into commit sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

from reconciler.contract.keyspace import is_half_queue
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.subscription import Shard, Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementQueue:
    """One queue of the unique-key topic on one broker; its number is the shard.

    Of the half topic: one shard's place in the only queue.
    """

    #: Or the half topic.
    unique_key_topic: str
    #: Its name; of the half topic what `half_queue` makes of it (contract/keyspace.py).
    broker: str
    queue_id: int

    @property
    def stored(self) -> AnnouncementQueue:
        """The queue that its broker stores, which one reader reads for all places in it."""
        return replace(self, queue_id=0) if is_half_queue(self.broker) else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A row of reconciler_floor: everything announced below `queue_offset` was matched or settled."""

    subscription: Subscription
    broker: str
    queue_id: int
    queue_offset: int
    updated_at_ms: int
    #: What proves it, maybe of a lower offset; None: nothing does.
    proof: QueueProof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Answer of HalfSets.admit."""

    #: False: the stored offset was another one, nothing was written.
    admitted: bool
    #: The offset stored now; None: none is stored (Redis lost it, or it is new).
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRecords:
    """Records of a queue that were seen, kept beside its offset (contract/queue_proof.py). Empty: none is known."""

    #: Names the offset that it belongs to. Another release may have moved the stored offset: then it is no proof yet.
    proof: QueueProof | None = None
    #: Oldest first.
    trail: Sequence[QueueRecord] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedFrom:
    """Where a group's offset proves something again, in a queue that gave offsets a second time: of records at this
    offset or behind it that lie behind this place in the commit log."""

    queue_offset: int
    behind_log_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenQueue:
    """What was seen of a queue of a business topic."""

    #: Offset that the next message got, at the last look.
    end: int
    #: One of its last records; None: it was not shown, and proves nothing.
    record: QueueRecord | None = None
    #: Offsets below this one may have been given twice. Rises each time that this is noticed.
    doubtful_below: int = 0
    #: By group, EVERY_GROUP for all: since the last time that this was noticed.
    proved_from: Mapping[str, ProvedFrom] = field(default_factory=dict)


class SeenQueues(Protocol):
    """Where that is kept over restarts. Raises DatabaseAway."""

    def of_topic(self, environment: str, topic: str) -> Mapping[tuple[str, int], SeenQueue]:
        """By broker and number."""
        ...

    def keep(self, environment: str, topic: str, seen: Mapping[tuple[str, int], SeenQueue]) -> None:
        """Replaces what is kept of these; `doubtful_below` only rises, and what is proved belongs to its own one."""
        ...


#: A queue of a subscription, with the shard that it is read into.
QueuePlace = tuple[Shard, AnnouncementQueue]


class HalfSets(Protocol):
    """Announced keys of a subscription's shards, with the consumer's offset beside them. Raises RedisAway."""

    @property
    def is_spread(self) -> bool:
        """As ShardMemory.is_spread."""
        ...

    def position(self, shard: Shard, queue: AnnouncementQueue) -> int | None:
        """The stored next offset of the queue; None if there is none."""
        ...

    def positions(self, places: Sequence[QueuePlace]) -> Mapping[QueuePlace, int | None]:
        """Stored next offsets of many queues at once; those that did not answer are left out. Raises nothing."""
        ...

    def known_records(self, shard: Shard, queue: AnnouncementQueue) -> KnownRecords:
        """What was kept beside the offset. Without the right to read it, nothing was."""
        ...

    def admit(
        self,
        shard: Shard,
        queue: AnnouncementQueue,
        *,
        expected: int | None,
        following: int,
        unique_keys: Sequence[str],
        apart: Sequence[str] = (),
        record: QueueRecord | None = None,
        trail: Sequence[QueueRecord] | None = None,
    ) -> Admission:
        """One atomic step: if the stored offset is `expected` (None: none), add the keys and store `following`.

        `apart`: those of them whose announced tag the group does not take; they are set apart, too (ShardMemory.apart),
        unless there is no room or no right to do so. If the stored offset is another one, nothing is written and it is
        returned: seek there. Adding a key twice is harmless.

        `record`: the last one that was seen below `following`, which is kept as its proof; `trail`: kept in place of
        the stored one. Neither is kept without the right to do so.
        """
        ...

    def size(self, shard: Shard) -> int:
        """Keys in the half set: above a ceiling the announcement consumer suspends."""
        ...

    def take_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the lease of the queue; False if another token holds it. Saves work, proves nothing."""
        ...

    def renew_leases(self, places: Sequence[QueuePlace], *, token: str, lease_seconds: float) -> Set[QueuePlace]:
        """Those of many leases that the token holds now; of the others nothing is known. Raises nothing."""
        ...

    def release_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str) -> None:
        """Gives the lease up if the token holds it."""
        ...


class CommitSets(Protocol):
    """Consumed keys. Raises RedisAway; the business never waits for it longer than the recorder allows."""

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        """Adds keys to the commit sets of their shards. Adding twice is harmless; a crash may leave only some added."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAnnouncement:
    """A message of the unique-key topic that was not admitted."""

    queue: AnnouncementQueue
    queue_offset: int
    #: MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE.
    reason: str
    detail: str
    body: bytes


class AnnouncementLedger(Protocol):
    """Durable side of the announcement consumer. Raises DatabaseAway."""

    def floor(self, subscription: Subscription, queue: AnnouncementQueue) -> Floor | None:
        """Where to start when Redis has no offset, if the queue still has the record that proves it. Else, and if it is
        None, at the queue's earliest offset, never its last."""
        ...

    def quarantine(self, environment: str, refused: Sequence[RefusedAnnouncement]) -> None:
        """Keeps refused announcements. Doing it twice is harmless."""
        ...

    def open_outage_reason(self, environment: str) -> str | None:
        """Of an outage row that is open and not yet scanned (Outage.is_scanned): announcement consumers stay suspended.
        They resume before the rounds do, which close the row."""
        ...

    def open_outage(self, environment: str, *, reason: str, noticed_by: str) -> None:
        """Opens an outage row unless one is open. Starts at database time, or at the last stored round if earlier."""
        ...
