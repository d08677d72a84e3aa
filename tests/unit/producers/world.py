"""A producer over a broker in memory: halves and announcements are lists, the outbox is a real database."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.errors import HalfNotSafe
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import AnnouncementMessage, Answer, CheckedHalf, OutboxEntry, Outcome, SentHalf
from checkback_producers.producer import TransactionalProducer
from checkback_producers.transaction import Completion
from reconciler.clock import Clock, ManualClock
from reconciler.contract.announcement import decode_announcement
from reconciler.errors import ReconcilerError
from reconciler.policy.evidence import EndOutcome, SendAnswer
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine, reading
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import outbox, outbox_metadata

GROUP = "order-service"
TOPIC = "ORDERS"

_numbers = itertools.count(1)


def new_key() -> str:
    """A unique key that no other test has."""
    return f"{next(_numbers):032X}"


def message(**changes: object) -> Message:
    """An order."""
    values: dict[str, object] = {"topic": TOPIC, "body": b"one order", "tags": "paid", "keys": ("o-1", "c-7")}
    return Message(**{**values, **changes})  # type: ignore[arg-type]  # names are the fields'


def checked(
    unique_key: str, *, born_timestamp_ms: int = 0, check_times: int = 0, outbox_mark: str | None = None
) -> CheckedHalf:
    """What a broker asks about."""
    return CheckedHalf(
        unique_key=unique_key,
        topic=TOPIC,
        producer_group=GROUP,
        tag="paid",
        born_timestamp_ms=born_timestamp_ms,
        check_times=check_times,
        outbox_mark=outbox_mark,
    )


@dataclass
class MemoryHalves:
    """The port HalfSender in memory."""

    sent: list[Message] = field(default_factory=list)
    ended: list[tuple[str, Outcome]] = field(default_factory=list)
    end_answer: SendAnswer = field(default_factory=lambda: SendAnswer(outcome=EndOutcome.DONE, code=0))
    end_failure: Exception | None = None
    send_failure: Exception | None = None
    unsafe_status: str | None = None
    asks_back: bool | None = True
    answer: Answer | None = None
    is_running: bool = False

    def start(self, answer: Answer) -> None:
        self.answer = answer
        self.is_running = True

    def shutdown(self) -> None:
        self.is_running = False

    def has_check_back(self) -> bool | None:
        return self.asks_back

    def next_unique_key(self) -> str:
        return new_key()

    def send_half(self, message: Message) -> SentHalf:
        if self.send_failure is not None:
            raise self.send_failure
        self.sent.append(message)
        key = message.unique_key or ""
        half = SentHalf(unique_key=key, broker="broker-a", commit_log_offset=4_000_000_000_000, queue_offset=7)
        if self.unsafe_status is not None:
            raise HalfNotSafe(key, status=self.unsafe_status, end_answer=self.end(half, Outcome.ROLLBACK))
        return half

    def end(self, half: SentHalf, outcome: Outcome) -> SendAnswer:
        self.ended.append((half.unique_key, outcome))
        if self.end_failure is not None:
            raise self.end_failure
        return self.end_answer


@dataclass
class MemoryAnnouncements:
    """The port AnnouncementSender in memory."""

    sent: list[AnnouncementMessage] = field(default_factory=list)
    failure: ReconcilerError | None = None

    def send_announcement(self, message: AnnouncementMessage) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(message)

    @property
    def keys(self) -> list[str]:
        """Announced keys in order, with repetitions."""
        return [key.unique_key for message in self.sent for key in decode_announcement(message.body).keys]


class World:
    """One database with an outbox and one producer; `business` is a table of the service's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = open_engine(url, lock_timeout_seconds=5)
        metadata = sa.MetaData()
        self.business = sa.Table("business", metadata, sa.Column("name", sa.String(100), primary_key=True))
        outbox_metadata.create_all(self.engine)
        metadata.create_all(self.engine)
        self.mark = ensure_identity(self.engine)
        self.halves = MemoryHalves()
        self.announcements = MemoryAnnouncements()
        self.clock = ManualClock()
        self._open: list[TransactionalProducer] = []
        self._outboxes: list[SqlOutbox] = []

    def producer(self, **settings: Any) -> TransactionalProducer:
        """A started producer, with what `made` takes."""
        producer = self.made(**settings)
        self._open.append(producer)
        return producer.start()

    def made(
        self,
        *,
        outbox_url: str | None = "",
        without_outbox: bool = False,
        completion: Completion = "end",
        keep_bodies: bool = False,
        announce_every_seconds: float | None = None,
        clock: Clock | None = None,
    ) -> TransactionalProducer:
        """A producer that is not started."""
        return TransactionalProducer(
            group=GROUP,
            halves=self.halves,
            announcer=Announcer(self.announcements, AnnouncementRoute(environment="test", queues=4)),
            outbox=None if without_outbox else SqlOutbox(outbox_url or self.url),
            without_outbox=without_outbox,
            completion=completion,
            keep_bodies=keep_bodies,
            announce_every_seconds=announce_every_seconds,
            clock=clock or self.clock,
        )

    @property
    def database(self) -> Any:
        """What the service opens its transactions with."""
        return self.engine

    def session(self) -> Any:
        """A session of the service's own."""
        return Session(self.engine)

    def record(self, rows: SqlOutbox, connection: Any, entry: OutboxEntry) -> None:
        """As a block of this face does it."""
        rows.record(connection, entry)

    def other_database(self, url: str | None = None, **options: Any) -> Any:
        """Another engine of the service's own."""
        return sa.create_engine(url or self.url, **options)

    def checked(self, unique_key: str, *, born_timestamp_ms: int = 0, check_times: int = 0) -> CheckedHalf:
        """What a broker asks about a half of this world's producers."""
        return checked(unique_key, born_timestamp_ms=born_timestamp_ms, check_times=check_times, outbox_mark=self.mark)

    def outbox(self, url: str | None = None, *, clock: Clock | None = None) -> SqlOutbox:
        """The outbox as another process opens it, closed with the world."""
        self._outboxes.append(SqlOutbox(url or self.url, clock=clock))
        return self._outboxes[-1]

    def state(self, unique_key: str) -> str | None:
        """State of the committed outbox row."""
        with reading(self.engine) as connection:
            return connection.execute(
                sa.select(outbox.c.state).where(outbox.c.unique_key == unique_key)
            ).scalar_one_or_none()

    def row(self, unique_key: str) -> sa.Row[tuple[object, ...]]:
        """The whole outbox row."""
        with reading(self.engine) as connection:
            return connection.execute(sa.select(outbox).where(outbox.c.unique_key == unique_key)).one()

    def insert_row(self, unique_key: str, *, state: str = "NEW", **values: object) -> None:
        """An outbox row as an earlier transaction left it."""
        filled = {"topic": TOPIC, "producer_group": GROUP, "tag": "paid", "created_at_ms": 1, **values}
        with self.engine.begin() as connection:
            connection.execute(sa.insert(outbox).values(unique_key=unique_key, state=state, **filled))

    def did_business(self, name: str) -> bool:
        """True if the service's own row is committed."""
        with reading(self.engine) as connection:
            query = sa.select(self.business.c.name).where(self.business.c.name == name)
            return connection.execute(query).one_or_none() is not None

    def do_business(self, connection: sa.Connection, name: str) -> None:
        """The service's own write."""
        connection.execute(sa.insert(self.business).values(name=name))

    def close(self) -> None:
        """Shuts everything down."""
        for producer in self._open:
            producer.shutdown()
        for opened in self._outboxes:
            opened.close()
        self.engine.dispose()
