"""What the producer's procedures ask of the outside world: one effect a call, nothing kept in memory.

The procedures (send, end of a block, check answer, announcement, sweep) reach brokers, databases and the caller's
transaction only through these. Adapters: outbox.py (SQL), remoting.py (brokers), client_python.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from reconciler.policy.evidence import SendAnswer
from reconciler.policy.sweeping import OutboxFact, SettledTags
from reconciler.rocketmq.wire.message import Message


class Outcome(StrEnum):
    """What is known about a local transaction: also the answer to a broker's check-back."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentHalf:
    """A half message that a broker holds."""

    unique_key: str
    #: Where it lies; None where the client does not tell (librocketmq).
    broker: str | None
    commit_log_offset: int | None
    queue_offset: int | None
    #: The transport's own, handed back to it by `end`.
    handle: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedHalf:
    """A half that a broker asks about."""

    unique_key: str
    topic: str
    producer_group: str
    tag: str | None
    #: Stamped by the producer's clock.
    born_timestamp_ms: int
    #: Property TRANSACTION_CHECK_TIMES: rounds of the broker, this one included; 0 without the property.
    check_times: int
    #: Property RECONCILER_OUTBOX: the half's mark. None: a Java member, or a plug-in without an outbox.
    outbox_mark: str | None


#: Answers check-backs; called on threads of the transport. An exception counts as UNKNOWN.
Answer: TypeAlias = Callable[[CheckedHalf], Outcome]


class HalfSender(Protocol):
    """The transport of halves."""

    def start(self, answer: Answer) -> None:
        """Connects, joins the producer group and answers check-backs from now on. Raises TransientError."""
        ...

    def shutdown(self) -> None:
        """Leaves the group; afterwards brokers ask other members."""
        ...

    def has_check_back(self) -> bool | None:
        """False: a broker's version never asks back (up to 4.2). None: a broker did not answer."""
        ...

    def next_unique_key(self) -> str:
        """A key that no other message has."""
        ...

    def send_half(self, message: Message) -> SentHalf:
        """Sends a half under `message.unique_key`.

        Raises HalfNotSafe after END ROLLBACK if it is stored less safely than configured, else TransientError or
        PermanentError if it was refused, or if its storage is not known.
        """
        ...

    def end(self, half: SentHalf, outcome: Outcome) -> SendAnswer:
        """Sends END_TRANSACTION once, two-way, and returns the answer; failures are answers too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementMessage:
    """One message for the unique-key topic."""

    unique_key_topic: str
    #: The queue on whichever broker takes it: the shard of all its keys.
    queue_id: int
    #: The business topic: announcement consumers filter by it.
    tag: str
    body: bytes
    #: RECONCILER_SIGNATURE, or none.
    properties: Mapping[str, str]


class AnnouncementSender(Protocol):
    """The transport of announcements."""

    def send_announcement(self, message: AnnouncementMessage) -> None:
        """Sends to the queue on one broker, if that is away to the same queue on another.

        Raises TransientError or PermanentError if no broker confirmed it. Sending twice is harmless.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """What `record` writes."""

    unique_key: str
    topic: str
    producer_group: str
    tag: str | None
    message_keys: str | None
    business_id: str
    half_broker: str | None
    half_commit_log_offset: int | None
    half_queue_offset: int | None
    #: JSON text of the user properties, if the body is kept.
    properties: str | None
    body: bytes | None
    content_digest: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPage:
    """Rows in the order asked for, unreadable ones among them, and the database's time when they were read."""

    facts: tuple[OutboxFact, ...]
    now_ms: int


class LocalTransaction(Protocol):
    """The caller's transaction after `record`."""

    def is_open(self) -> bool:
        """True while the recorded connection is in a transaction: its outcome is not known yet."""
        ...


#: Runs a step that blocks on a thread of its own, and waits for it.
Apart: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]


class AwaitedOutbox(Protocol):
    """An outbox whose `record` may be awaited."""

    async def record_awaited(self, connection: object, entry: OutboxEntry, apart: Apart) -> LocalTransaction:
        """Outbox.record on an asynchronous connection of the caller; what blocks runs `apart`."""
        ...


class Outbox(Protocol):
    """The producer's own database. Raises DatabaseAway (also for a lock), ConfigurationError for a missing table."""

    def identity(self) -> str:
        """What names the database: the mark of its producers' halves. Read once; also raises ConfigurationError for a
        missing row."""
        ...

    def record(self, connection: object, entry: OutboxEntry) -> LocalTransaction:
        """Inserts the row NEW in the caller's transaction; nothing is committed.

        Raises UnsafeConnection, RolledBackAlready, KeyTaken, DatabaseAway.
        """
        ...

    def find(self, unique_key: str) -> OutboxFact | None:
        """The committed row, tombstones too; read by a new statement on a connection of its own.

        Raises MalformedInput for a damaged row, and for what is no key.
        """
        ...

    def insert_tombstone(self, half: CheckedHalf) -> bool:
        """Inserts and commits a ROLLED_BACK row in a READ COMMITTED transaction of its own; False: the key exists.

        Only for a half with this database's mark: another database may have the row of any other.
        Waits 2 s at most for a transaction that holds the key, then raises DatabaseAway. Raises MalformedInput for a
        half that the database could not keep as it is.
        """
        ...

    def mark_announced(self, unique_keys: Sequence[str]) -> int:
        """NEW becomes ANNOUNCED, ANNOUNCED gets a new time; other states stay."""
        ...

    def mark_settled(self, unique_keys: Sequence[str]) -> int:
        """ANNOUNCED becomes SETTLED; other states stay."""
        ...

    def unannounced(
        self,
        producer_group: str,
        *,
        older_than_seconds: float,
        limit: int,
        after: OutboxFact | None = None,
        with_key: bool = False,
    ) -> OutboxPage:
        """NEW rows older than that, or of the future, by (created_at_ms, unique_key), after a row.

        `with_key`: rows whose unique_key is none take no place in the page.
        """
        ...

    def with_due_rows(self, producer_groups: Sequence[str], *, older_than_seconds: float) -> frozenset[str]:
        """Those of the groups whose oldest NEW row is older than that: one cheap statement for all of them."""
        ...

    def announced(
        self, producer_group: str, *, older_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """ANNOUNCED rows whose last announcement is older than that, or lies in the future, by (announced_at_ms,
        unique_key), after a row."""
        ...

    def delete_finished(self, producer_group: str, *, older_than_seconds: float, limit: int) -> int:
        """Deletes up to `limit` rows that were SETTLED, or written as ROLLED_BACK, longer ago; never NEW or ANNOUNCED.

        Old is what is old by the database's clock and by the host's. One small transaction; returns how many went.
        Fewer than `limit`: none is left, or another process is at it.
        """
        ...

    def settled_tags(self, producer_group: str) -> Mapping[tuple[str, str], SettledTags]:
        """By topic and consumer group; a damaged value counts as no tag at all."""
        ...

    def write_settled_tags(
        self, producer_group: str, subscription: tuple[str, str], tags: frozenset[str] | None, *, instead_of: int | None
    ) -> bool:
        """Replaces the value of version `instead_of` (None: there is none yet); False: another version is stored."""
        ...

    def written(
        self, producer_group: str, *, younger_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Rows of every state younger than that, by (created_at_ms, unique_key), after a row. A clock that jumps ahead
        makes no row old."""
        ...

    def reopen(self, unique_keys: Sequence[str]) -> int:
        """ANNOUNCED and SETTLED become NEW; other states stay."""
        ...

    def mark_swept(self) -> None:
        """Writes database time as the sign of life, unless the database says that it is a replica.

        Raises DatabaseAway (also for a missing right) and ConfigurationError (no column, no row, a replica).
        """
        ...

    def close(self) -> None:
        """Gives the connections back."""
        ...
