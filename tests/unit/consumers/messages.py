"""Messages and tables that the consumer tests share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from checkback_consumers.message import ConsumedMessage, HandedOverMessage
from reconciler.sql.tables import inbox_metadata
from tests.engines import with_tables

_numbers = itertools.count(1)

business = sa.MetaData()
#: Without any unique index: two effects are seen as two rows.
effects = sa.Table(
    "effects", business, sa.Column("unique_key", sa.String(64)), sa.Column("amount", sa.Integer, nullable=False)
)


def new_key() -> str:
    """A key that no other test has."""
    return f"{next(_numbers):032X}"


def message(
    unique_key: str | None = None, *, body: bytes = b"paid", topic: str = "ORDERS", **properties: str
) -> HandedOverMessage:
    """A message as a client brings it."""
    key = unique_key or new_key()
    return HandedOverMessage(
        topic=topic, unique_key=key, body=body, properties={"UNIQ_KEY": key, "TAGS": "paid", **properties}
    )


@contextmanager
def inbox_engine(url: str) -> Iterator[sa.Engine]:
    """An engine on a database with an inbox and the business table."""
    with with_tables(url, inbox_metadata, business) as engine:
        yield engine


def sqlite_url(folder: Path) -> str:
    """A fresh file database."""
    return f"sqlite:///{folder / 'service.db'}"


def pay(received: ConsumedMessage, connection: Any) -> None:
    """The handler of most tests: one effect for the key."""
    connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))


def effect_count(engine: sa.Engine, unique_key: str | None = None) -> int:
    """Rows of the business table."""
    query = sa.select(sa.func.count()).select_from(effects)
    if unique_key is not None:
        query = query.where(effects.c.unique_key == unique_key)
    with engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


class KeptRecorder:
    """A recorder that remembers, and can be told to be without Redis."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []
        self.is_away = False

    def record(self, topic: str, unique_key: str) -> bool:
        """False while away."""
        if self.is_away:
            return False
        self.recorded.append((topic, unique_key))
        return True
