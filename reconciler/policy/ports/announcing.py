"""Ports of step 6: announced keys are added to half sets, and consumed keys to commit sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

from reconciler.contract.keyspace import is_half_queue
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.subscription import Shard, Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementQueue:
    """One queue of the unique-key topic on one broker. The queue's number is also the shard's number.

    For the half topic, the position of one shard in the topic's only queue.
    """

    #: The unique-key topic, or the half topic.
    unique_key_topic: str
    #: The broker's name. For the half topic, the name that `half_queue` makes of it (contract/keyspace.py).
    broker: str
    queue_id: int

    @property
    def stored(self) -> AnnouncementQueue:
        """The queue as its broker stores it. One reader reads that queue for the positions of all shards."""
        return replace(self, queue_id=0) if is_half_queue(self.broker) else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A row of reconciler_floor. Every key announced below `queue_offset` was matched or settled."""

    subscription: Subscription
    broker: str
    queue_id: int
    queue_offset: int
    updated_at_ms: int
    #: The proof of the queue, perhaps at a lower offset. None: the floor has no proof.
    proof: QueueProof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The answer of HalfSets.admit."""

    #: False if another offset was stored, so that nothing was written.
    admitted: bool
    #: The offset that is stored now. None: no offset is stored, because Redis lost it or the queue is new.
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRecords:
    """Records of a queue that were seen, stored beside the queue's offset (contract/queue_proof.py). Empty: no record
    is known."""

    #: The last record, with the offset to which it belongs. If another release has moved the stored offset, the record
    #: proves nothing yet.
    proof: QueueProof | None = None
    #: Earlier records, beginning with the oldest.
    trail: Sequence[QueueRecord] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedFrom:
    """The place from which a group's offset proves something again, in a queue that assigned offsets twice. The group's
    offset counts only for records at or after `queue_offset` that lie behind `behind_log_offset` in the commit log."""

    queue_offset: int
    behind_log_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenQueue:
    """The state in which one queue of a business topic was last seen."""

    #: The offset of the next message, at the last look.
    end: int
    #: A record near the queue's end. None: the broker did not show a record, so nothing is proved.
    record: QueueRecord | None = None
    #: The queue may have assigned offsets below this offset twice. This value rises each time that a second assignment
    #: is noticed.
    doubtful_below: int = 0
    #: Group (EVERY_GROUP: all groups) -> the place from which its offset proves something, since `doubtful_below` last
    #: rose.
    proved_from: Mapping[str, ProvedFrom] = field(default_factory=dict)


class SeenQueues(Protocol):
    """Stores the seen states of queues, so that they outlive restarts. Raises DatabaseAway."""

    def of_topic(self, environment: str, topic: str) -> Mapping[tuple[str, int], SeenQueue]:
        """Returns (broker, queue number) -> the state in which the queue was last seen."""
        ...

    def keep(self, environment: str, topic: str, seen: Mapping[tuple[str, int], SeenQueue]) -> None:
        """Replaces the stored values of these queues. `doubtful_below` never sinks, and `proved_from` is kept only with
        the `doubtful_below` that it belongs to."""
        ...


#: A queue of a subscription, with the shard that takes its keys.
QueuePlace = tuple[Shard, AnnouncementQueue]


class HalfSets(Protocol):
    """The half sets of a subscription's shards. A half set has announced keys, with the consumer's offset beside them.
    Raises RedisAway."""

    @property
    def is_spread(self) -> bool:
        """True in the cases of ShardMemory.is_spread."""
        ...

    def position(self, shard: Shard, queue: AnnouncementQueue) -> int | None:
        """Returns the stored next offset of the queue. None: no offset is stored."""
        ...

    def positions(self, places: Sequence[QueuePlace]) -> Mapping[QueuePlace, int | None]:
        """Returns the stored next offsets of many queues. Queues that did not answer are left out. Raises nothing."""
        ...

    def known_records(self, shard: Shard, queue: AnnouncementQueue) -> KnownRecords:
        """Returns the records that are stored beside the offset. Empty without the right to read these records."""
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
        """Adds the keys and stores `following`, in one atomic step, if the stored offset is `expected` (None: no
        offset).

        `apart`: those keys whose announced tag the group does not take. Such keys are also set apart
        (ShardMemory.apart), if there is room and the right to do so. If another offset is stored, nothing is written
        and that offset is returned: the caller continues there. Adding a key twice is harmless.

        `record`: the last record that was seen below `following`; it is stored as the proof. `trail` replaces the
        stored trail. Without the right to do so, neither is stored.
        """
        ...

    def size(self, shard: Shard) -> int:
        """Returns the number of keys in the half set. Above a limit, the announcement consumer suspends."""
        ...

    def take_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the queue's lease. False: another token holds it. The lease saves work and proves nothing."""
        ...

    def renew_leases(self, places: Sequence[QueuePlace], *, token: str, lease_seconds: float) -> Set[QueuePlace]:
        """Renews many leases. Returns the places whose lease the token surely holds now. Raises nothing."""
        ...

    def release_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str) -> None:
        """Gives the lease back if the token holds it."""
        ...


class CommitSets(Protocol):
    """Sets of consumed keys. Raises RedisAway. The business never waits longer than the recorder allows."""

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        """Adds keys to the commit sets of their shards. Adding a key twice is harmless. After a crash, only some of the
        keys may have been added."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAnnouncement:
    """A message of the unique-key topic that was not admitted."""

    queue: AnnouncementQueue
    queue_offset: int
    #: The code of the reason: MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE.
    reason: str
    detail: str
    body: bytes


class AnnouncementLedger(Protocol):
    """The durable rows of the announcement consumer. Raises DatabaseAway."""

    def floor(self, subscription: Subscription, queue: AnnouncementQueue) -> Floor | None:
        """Returns the offset at which the consumer starts if Redis has none. This start counts only if the queue still
        has the record that proves the start. Otherwise, and for None, the consumer starts at the queue's earliest
        offset, never at its last offset."""
        ...

    def quarantine(self, environment: str, refused: Sequence[RefusedAnnouncement]) -> None:
        """Stores refused announcements. Storing an announcement twice is harmless."""
        ...

    def open_outage_reason(self, environment: str) -> str | None:
        """Returns the reason of an open outage whose scan has not ended (Outage.is_scanned). None: no such outage
        exists. Announcement consumers stay suspended during such an outage. Announcement consumers resume before rounds
        do, and a round then closes the outage."""
        ...

    def open_outage(self, environment: str, *, reason: str, noticed_by: str) -> None:
        """Opens an outage row, unless a row is open. The outage starts at database time, or at the last stored round if
        that is earlier."""
        ...
