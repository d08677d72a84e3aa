"""A service that sends orders over rocketmq-client-python, with its database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.client_python import NativeProducer, open_native_producer
from checkback_producers.transaction import Transaction
from reconciler.contract.announcement import decode_announcement
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import outbox, outbox_metadata
from tests.native.native_records import Cluster
from tests.native.stand_in import StandIn

GROUP = "orders"
TOPIC = "ORDERS"
NAME_SERVERS = "127.0.0.1:9876"
UNIQUE_KEY_TOPIC = b"RECONCILER_UNIQUE_KEY"


def order(**changes: Any) -> Message:
    """One order."""
    values: dict[str, Any] = {"topic": TOPIC, "body": b"one order", "tags": "paid", "keys": ("o-1", "c-7")}
    return Message(**{**values, **changes})


class Orders:
    """The service."""

    def __init__(self, url: str, library: StandIn) -> None:
        self.url = url
        self.library = library
        self.engine = open_engine(url)
        self.placed = sa.Table("placed", sa.MetaData(), sa.Column("name", sa.String(100), primary_key=True))
        outbox_metadata.create_all(self.engine)
        self.placed.create(self.engine)
        ensure_identity(self.engine)
        self._open: list[NativeProducer] = []

    @property
    def cluster(self) -> Cluster:
        """What the broker got."""
        return self.library.cluster(NAME_SERVERS)

    def producer(self, *, started: bool = True, **options: Any) -> NativeProducer:
        """A producer of the service."""
        values: dict[str, Any] = {
            "group": GROUP,
            "environment": "test",
            "name_servers": NAME_SERVERS,
            "outbox_url": None if options.get("without_outbox") else self.url,
            "announcements": AnnouncementRoute(environment="test", queues=4),
        }
        producer = open_native_producer(**{**values, **options})
        self._open.append(producer)
        return producer.start() if started else producer

    def place(self, tx: Transaction, name: str = "one") -> None:
        """The local transaction: outbox row, business, commit."""
        with self.engine.begin() as connection:
            tx.record(connection)
            connection.execute(self.placed.insert().values(name=name))

    @property
    def names(self) -> list[str]:
        """Committed business."""
        with self.engine.connect() as connection:
            return list(connection.execute(sa.select(self.placed.c.name)).scalars())

    def rows(self) -> list[Any]:
        """The outbox."""
        with self.engine.connect() as connection:
            return list(connection.execute(sa.select(outbox)).all())

    def announced(self) -> list[tuple[int, str]]:
        """(queue, key) of every announcement that the broker has."""
        return [
            (index, key.unique_key)
            for index, record in self.cluster.messages
            if record.topic == UNIQUE_KEY_TOPIC
            for key in decode_announcement(record.body).keys
        ]

    def close(self) -> None:
        """Producers that still run are shut down."""
        for producer in self._open:
            producer.shutdown()
        self.engine.dispose()
