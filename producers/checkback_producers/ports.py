"""What the producer's procedures ask of the outside world: each call has one effect, and nothing is kept in memory.

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
    """What is known about a local transaction; also the answer to a broker's check-back."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentHalf:
    """A half message that a broker holds."""

    unique_key: str
    #: The broker that holds it; None where the client does not show it (librocketmq).
    broker: str | None
    commit_log_offset: int | None
    queue_offset: int | None
    #: A value of the transport, handed back to it by `end`.
    handle: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedHalf:
    """A half that a broker asks about."""

    unique_key: str
    topic: str
    producer_group: str
    tag: str | None
    #: The time of sending by the producer's clock.
    born_timestamp_ms: int
    #: Property TRANSACTION_CHECK_TIMES: how many times the broker has asked, this time included; 0 without the
    #: property.
    check_times: int
    #: Property RECONCILER_OUTBOX: the half's mark. None: a Java member, or a plug-in without an outbox.
    outbox_mark: str | None


#: Answers check-backs; called on threads of the transport. An exception counts as UNKNOWN.
Answer: TypeAlias = Callable[[CheckedHalf], Outcome]


class HalfSender(Protocol):
    """The transport that sends halves."""

    def start(self, answer: Answer) -> None:
        """Connects, joins the producer group, and answers check-backs from then on. Raises TransientError."""
        ...

    def shutdown(self) -> None:
        """Leaves the group; afterwards brokers ask other members."""
        ...

    def has_check_back(self) -> bool | None:
        """Returns False if a broker's version never checks back (up to 4.2). None: a broker did not answer."""
        ...

    def next_unique_key(self) -> str:
        """Returns a key that no other message has."""
        ...

    def send_half(self, message: Message) -> SentHalf:
        """Sends a half under `message.unique_key`.

        If the half is stored less safely than configured, sends END ROLLBACK and raises HalfNotSafe. If it was refused,
        or its storage is unknown, raises TransientError or PermanentError.
        """
        ...

    def end(self, half: SentHalf, outcome: Outcome) -> SendAnswer:
        """Sends END_TRANSACTION once and waits for the answer; failures are returned as answers, too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementMessage:
    """One message for the unique-key topic."""

    unique_key_topic: str
    #: The queue on whichever broker takes the message: the shard of all its keys.
    queue_id: int
    #: The business topic, by which announcement consumers filter.
    tag: str
    body: bytes
    #: RECONCILER_SIGNATURE, or empty.
    properties: Mapping[str, str]


class AnnouncementSender(Protocol):
    """The transport that sends announcements."""

    def send_announcement(self, message: AnnouncementMessage) -> None:
        """Sends to the queue on one broker; if that broker is away, to the same queue on another one.

        Raises TransientError or PermanentError if no broker confirmed it. Sending twice is harmless.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """The row that `record` writes."""

    unique_key: str
    topic: str
    producer_group: str
    tag: str | None
    message_keys: str | None
    business_id: str
    half_broker: str | None
    half_commit_log_offset: int | None
    half_queue_offset: int | None
    #: JSON text of the user properties, if the body is stored.
    properties: str | None
    body: bytes | None
    content_digest: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPage:
    """Rows in the requested order, unreadable ones included, and the database's time of the reading."""

    facts: tuple[OutboxFact, ...]
    now_ms: int


class LocalTransaction(Protocol):
    """The caller's transaction after `record`."""

    def is_open(self) -> bool:
        """Returns True while the recorded connection is in a transaction: its outcome is not known yet."""
        ...


#: Runs a blocking step on a thread of its own, and waits for it.
Apart: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]


class AwaitedOutbox(Protocol):
    """An outbox whose `record` may be awaited."""

    async def record_awaited(self, connection: object, entry: OutboxEntry, apart: Apart) -> LocalTransaction:
        """Does what Outbox.record does on an asynchronous connection of the caller; blocking steps run `apart`."""
        ...


class Outbox(Protocol):
    """The producer's own database. Raises DatabaseAway (also for a lock), ConfigurationError for a missing table."""

    def identity(self) -> str:
        """Returns the text that identifies the database: the mark of its producers' halves. It is read once; also
        raises ConfigurationError for a missing row."""
        ...

    def record(self, connection: object, entry: OutboxEntry) -> LocalTransaction:
        """Inserts the row as NEW in the caller's transaction, without a commit.

        Raises UnsafeConnection, RolledBackAlready, KeyTaken, DatabaseAway.
        """
        ...

    def find(self, unique_key: str) -> OutboxFact | None:
        """Returns the committed row, tombstones included; reads it by a new statement on its own connection.

        Raises MalformedInput for a damaged row, and for a text that is no key.
        """
        ...

    def insert_tombstone(self, half: CheckedHalf) -> bool:
        """Inserts and commits a ROLLED_BACK row in a READ COMMITTED transaction of its own; False: the key exists.

        Only call it for a half with this database's mark, because another database may have the row of any other half.
        Waits 2 s at most for a transaction that holds the key, then raises DatabaseAway. Raises MalformedInput for a
        half that the database could not store unchanged.
        """
        ...

    def mark_announced(self, unique_keys: Sequence[str]) -> int:
        """Makes NEW rows ANNOUNCED and gives ANNOUNCED rows a new time; rows in other states stay."""
        ...

    def mark_settled(self, unique_keys: Sequence[str]) -> int:
        """Makes ANNOUNCED rows SETTLED; rows in other states stay."""
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
        """Returns NEW rows older than that, or of the future, after a given row, by (created_at_ms, unique_key).

        `with_key`: rows without a valid unique_key are left out of the page.
        """
        ...

    def with_due_rows(self, producer_groups: Sequence[str], *, older_than_seconds: float) -> frozenset[str]:
        """Returns those groups whose oldest NEW row is older than that; one cheap statement serves all of them."""
        ...

    def announced(
        self, producer_group: str, *, older_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Returns ANNOUNCED rows whose last announcement is older than that, or lies in the future, after a given row,
        by (announced_at_ms, unique_key)."""
        ...

    def delete_finished(self, producer_group: str, *, older_than_seconds: float, limit: int) -> int:
        """Deletes up to `limit` rows that became SETTLED, or were written as ROLLED_BACK, longer ago than that. It
        never deletes NEW or ANNOUNCED rows.

        A row is old if both the database's clock and the host's say so. Runs one small transaction and returns how many
        rows it deleted. Fewer than `limit`: no old row is left, or another process is deleting them.
        """
        ...

    def settled_tags(self, producer_group: str) -> Mapping[tuple[str, str], SettledTags]:
        """Returns the tags by topic and consumer group; a damaged value counts as no tag."""
        ...

    def write_settled_tags(
        self, producer_group: str, subscription: tuple[str, str], tags: frozenset[str] | None, *, instead_of: int | None
    ) -> bool:
        """Replaces the value of version `instead_of` (None: no value exists yet); False: another version is stored."""
        ...

    def written(
        self, producer_group: str, *, younger_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Returns rows of every state younger than that, after a given row, by (created_at_ms, unique_key). A clock
        that jumps ahead makes no row old."""
        ...

    def reopen(self, unique_keys: Sequence[str]) -> int:
        """Makes ANNOUNCED and SETTLED rows NEW; rows in other states stay."""
        ...

    def mark_swept(self) -> None:
        """Writes database time as the sign of life, unless the database is a replica.

        Raises DatabaseAway (also for a missing right) and ConfigurationError (no column, no row, a replica).
        """
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...
