"""The calls by which the producer's procedures reach the outside world. Each call has one effect, and nothing is kept
in memory.

The procedures are send, end of a block, check answer, announcement and sweep. The procedures reach brokers, databases
and the caller's transaction only through these ports. The adapters are outbox.py (SQL), remoting.py (brokers) and
client_python.py.
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
    """The outcome of a local transaction, as far as it is known. A check-back is answered with the same values."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentHalf:
    """A half message that a broker holds."""

    unique_key: str
    #: The broker that holds the half. None: the client (librocketmq) does not show the broker.
    broker: str | None
    commit_log_offset: int | None
    queue_offset: int | None
    #: A value of the transport, which `end` hands back to the transport.
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
    #: Property TRANSACTION_CHECK_TIMES: how many times the broker has asked, this time included. 0: the half has no
    #: such property.
    check_times: int
    #: Property RECONCILER_OUTBOX: the half's mark. None: a Java member, or a plug-in without an outbox, has sent the
    #: half.
    outbox_mark: str | None


#: Answers a check-back. The transport calls this function on its threads. An exception counts as UNKNOWN.
Answer: TypeAlias = Callable[[CheckedHalf], Outcome]


class HalfSender(Protocol):
    """The transport that sends halves."""

    def start(self, answer: Answer) -> None:
        """Connects, joins the producer group, and answers check-backs from then on. Raises TransientError."""
        ...

    def shutdown(self) -> None:
        """Leaves the group. Afterwards, brokers ask other members."""
        ...

    def has_check_back(self) -> bool | None:
        """Returns False if a broker's version never checks back (up to 4.2). Returns None if a broker did not
        answer."""
        ...

    def next_unique_key(self) -> str:
        """Returns a key that no other message has."""
        ...

    def send_half(self, message: Message) -> SentHalf:
        """Sends a half under `message.unique_key`.

        If the half is stored less safely than configured, sends END ROLLBACK and raises HalfNotSafe. If a broker
        refused the half, or if nobody knows whether it is stored, raises TransientError or PermanentError.
        """
        ...

    def end(self, half: SentHalf, outcome: Outcome) -> SendAnswer:
        """Sends END_TRANSACTION once and waits for the answer. A failure is returned as an answer, too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementMessage:
    """One message for the unique-key topic."""

    unique_key_topic: str
    #: Number of the queue, on whichever broker takes the message. This number is the shard of all keys of the message.
    queue_id: int
    #: The business topic. Announcement consumers filter by it.
    tag: str
    body: bytes
    #: RECONCILER_SIGNATURE, or empty.
    properties: Mapping[str, str]


class AnnouncementSender(Protocol):
    """The transport that sends announcements."""

    def send_announcement(self, message: AnnouncementMessage) -> None:
        """Sends to the queue on one broker. If that broker is away, sends to the same queue on another broker.

        Raises TransientError or PermanentError if no broker confirmed the message. Sending twice is harmless.
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
    """Rows in the requested order, including unreadable rows, and the database's time of the reading."""

    facts: tuple[OutboxFact, ...]
    now_ms: int


class LocalTransaction(Protocol):
    """The caller's transaction after `record`."""

    def is_open(self) -> bool:
        """Returns True while the recorded connection is in a transaction. The outcome of this transaction is not known
        yet."""
        ...


#: Runs a blocking step on a thread of its own, and waits for it.
Apart: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]


class AwaitedOutbox(Protocol):
    """An outbox whose `record` may be awaited."""

    async def record_awaited(self, connection: object, entry: OutboxEntry, apart: Apart) -> LocalTransaction:
        """Does what Outbox.record does, on an asynchronous connection of the caller. `apart` runs the blocking
        steps."""
        ...


class Outbox(Protocol):
    """The outbox in the producer's own database. Every call can raise DatabaseAway, for a lock too, and
    ConfigurationError for a missing table."""

    def identity(self) -> str:
        """Returns the text that identifies the database. Halves of its producers carry this text as their mark. The
        text is read once. Raises ConfigurationError for a missing row, too."""
        ...

    def record(self, connection: object, entry: OutboxEntry) -> LocalTransaction:
        """Inserts the row as NEW in the caller's transaction, without a commit.

        Can raise UnsafeConnection, RolledBackAlready, KeyTaken and DatabaseAway.
        """
        ...

    def find(self, unique_key: str) -> OutboxFact | None:
        """Returns the committed row of the key, which may be a tombstone. Reads the row by a new statement on a
        connection of the producer.

        Raises MalformedInput if the row is damaged, or if `unique_key` is not a valid key.
        """
        ...

    def insert_tombstone(self, half: CheckedHalf) -> bool:
        """Inserts and commits a ROLLED_BACK row in a READ COMMITTED transaction of its own. Returns False if the key
        exists.

        Call it only for a half with this database's mark, because another database may have the row of any other half.
        Waits at most 2 s for a transaction that holds the key, then raises DatabaseAway. Raises MalformedInput if the
        database could not store the half's fields unchanged.
        """
        ...

    def mark_announced(self, unique_keys: Sequence[str]) -> int:
        """Makes NEW rows ANNOUNCED and gives ANNOUNCED rows a new time. Rows in other states stay as they are."""
        ...

    def mark_settled(self, unique_keys: Sequence[str]) -> int:
        """Makes ANNOUNCED rows SETTLED. Rows in other states stay as they are."""
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
        """Returns NEW rows that are older than the given age or lie in the future. The rows are sorted by
        (created_at_ms, unique_key) and begin after a given row.

        With `with_key`, rows without a valid unique_key are left out of the page.
        """
        ...

    def with_due_rows(self, producer_groups: Sequence[str], *, older_than_seconds: float) -> frozenset[str]:
        """Returns the groups whose oldest NEW row is older than the given age. One cheap statement serves all
        groups."""
        ...

    def announced(
        self, producer_group: str, *, older_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Returns ANNOUNCED rows whose last announcement is older than the given age or lies in the future. The rows
        are sorted by (announced_at_ms, unique_key) and begin after a given row."""
        ...

    def delete_finished(self, producer_group: str, *, older_than_seconds: float, limit: int) -> int:
        """Deletes up to `limit` rows that became SETTLED, or were written as ROLLED_BACK, longer ago than the given
        age. Never deletes NEW or ANNOUNCED rows.

        A row is old if both the database's clock and the host's clock say so. Runs one small transaction and returns
        the number of deleted rows. If the number is below `limit`, no old row is left, or another process is deleting
        old rows.
        """
        ...

    def settled_tags(self, producer_group: str) -> Mapping[tuple[str, str], SettledTags]:
        """Returns the tags by topic and consumer group. A damaged value counts as no tag."""
        ...

    def write_settled_tags(
        self, producer_group: str, subscription: tuple[str, str], tags: frozenset[str] | None, *, instead_of: int | None
    ) -> bool:
        """Replaces the value of version `instead_of`, or inserts the first value if `instead_of` is None. Returns False
        if another version is stored."""
        ...

    def written(
        self, producer_group: str, *, younger_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Returns rows of every state that are younger than the given age. The rows are sorted by (created_at_ms,
        unique_key) and begin after a given row. A clock that jumps ahead makes no row old."""
        ...

    def reopen(self, unique_keys: Sequence[str]) -> int:
        """Makes ANNOUNCED and SETTLED rows NEW. Rows in other states stay as they are."""
        ...

    def mark_swept(self) -> None:
        """Writes database time as the sign of life, unless the database is a replica.

        Raises DatabaseAway, for a missing right too. Raises ConfigurationError if the column or the row is missing, or
        if the database is a replica.
        """
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...
