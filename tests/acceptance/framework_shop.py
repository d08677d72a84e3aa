"""What docs/how-to/frameworks.md and asyncio.md need and do not show: databases, and calls of what it defines."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from checkback_consumers import CommitRecorder, TransactionalConsumer
from checkback_producers import AnnouncementRoute, Message, Outcome, TransactionalProducer, open_producer
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from tests.acceptance.page_worlds import PageDeployment
from tests.pages import Beginning
from tests.polling import eventually
from tests.services.stacked import Stacked

TABLES = ("CREATE TABLE orders (number INTEGER PRIMARY KEY)", "CREATE TABLE bills (number INTEGER PRIMARY KEY)")


class FrameworkShop(Stacked):
    """Orders of each framework, in one SQLite database and one of PostgreSQL; each has to be billed by its handler."""

    def __init__(self, deployed: PageDeployment, postgres_url: str) -> None:
        super().__init__()
        self._deployed = deployed
        self._sqlite_url = f"sqlite:///{deployed.home}/var/orders.db"
        self._postgres_url = postgres_url
        self.names: dict[str, Any] = {}

    def _start(self) -> None:
        for url in (self._sqlite_url, self._postgres_url):
            for tree in ("outbox", "inbox"):
                schema.upgrade(url, tree)
        self.engine = open_engine(self._sqlite_url)
        self._stack.callback(self.engine.dispose)
        with self.engine.begin() as connection:
            for table in TABLES:
                connection.execute(sa.text(table))
        self.recorder = self._stack.enter_context(
            CommitRecorder.open(
                self._deployed.redis_url, environment="production", group="billing", shards=self._deployed.shards
            )
        )
        self.names |= {
            "engine": self.engine,
            "recorder": self.recorder,
            "producer": self._producer("order-service", self._sqlite_url),
        }

    def beginning(self) -> Beginning:
        """For `run_page`."""
        return self._deployed.beginning(names=self.names, producer_on_postgresql=self.on_postgresql)

    def on_postgresql(self) -> None:
        """Tries what came before on the page; from now on `producer` is that of a service with PostgreSQL."""
        for number, place in enumerate(("place", "place_by_session", "place_by_driver"), 1):
            assert self.names[place](number)
        assert self.names["place_both"](5, 6) == (Outcome.COMMIT, Outcome.COMMIT)
        assert self.names["place_as_before"](7)
        with pytest.raises(self.names["Refused"]):
            self.names["place_as_before"](7)
        assert self.names["producer"].counts.as_dict()["rolled_back"] == 1
        self._bill(self.names["bill"], self._bills, [1, 2, 3, 5, 6, 7])
        plain = self._postgres_url.replace("+psycopg", "")
        self._make_postgres_tables()
        self.names |= {"postgresql_url": plain, "producer": self._producer("order-service-2", self._postgres_url)}

    def try_the_rest(self) -> None:
        """What stands behind it."""
        assert self.names["place_by_psycopg"](4)
        assert self.names["place_with_a_drawn_number"]()
        self._bill(self.names["bill_by_psycopg"], self._postgres_bills, [4, 1000])

    def on_asyncio(self) -> Beginning:
        """For the other page: a database of PostgreSQL, and `place` of this one."""

        def place(number: int) -> str:
            message = Message(topic="ORDERS", body=b'{"order": %d}' % number)
            with self.names["producer"].transaction(message) as tx, self.engine.begin() as connection:
                tx.record(connection)
            return str(tx.unique_key)

        self._make_postgres_tables()
        plain = self._postgres_url.replace("+psycopg", "")
        asynchronous = self._postgres_url.replace("+psycopg", "+asyncpg")
        self.names |= {"postgresql_url": plain, "asynchronous_url": asynchronous, "place": place}
        return self._deployed.beginning(names=self.names)

    def try_asyncio(self) -> None:
        """What the other page has defined."""
        assert asyncio.run(posted(self.names["asynchronous_api"], "/orders/9"))["unique_key"]
        assert asyncio.run(posted(self.names["asynchronous_api"], "/orders/10"))["unique_key"]
        asyncio.run(self._receive([9, 10]))
        assert asyncio.run(self.names["place_in_a_thread"](8))

    def _make_postgres_tables(self) -> None:
        with psycopg.connect(self._postgres_url.replace("+psycopg", "")) as connection:
            for statement in (*TABLES, "CREATE SEQUENCE order_numbers START 1000"):
                connection.execute(statement)

    def _producer(self, group: str, url: str) -> TransactionalProducer:
        return self._stack.enter_context(self._made(group, url))

    def _made(self, group: str, url: str) -> TransactionalProducer:
        return open_producer(
            group=group,
            environment="production",
            name_servers=self._deployed.name_servers,
            outbox_url=url,
            announcements=AnnouncementRoute(environment="production", queues=4),
        )

    def _bill(self, handler: Any, bills: Callable[[], list[int]], expected: list[int]) -> None:
        with TransactionalConsumer(handler, name_servers=self._deployed.name_servers):
            eventually(lambda: bills() == expected, within_seconds=60, message=f"bills of {handler}")

    async def _receive(self, expected: list[int]) -> None:
        """By the handler in a loop."""
        stop = asyncio.Event()
        receiving = asyncio.create_task(self.names["receive"](stop))
        await asyncio.to_thread(eventually, lambda: self._postgres_bills() == expected, within_seconds=60)
        stop.set()
        await receiving

    def _bills(self) -> list[int]:
        with closing(sqlite3.connect(self._sqlite_url.removeprefix("sqlite:///"))) as database:
            return [number for (number,) in database.execute("SELECT number FROM bills ORDER BY number")]

    def _postgres_bills(self) -> list[int]:
        with psycopg.connect(self._postgres_url.replace("+psycopg", "")) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM bills ORDER BY number")]


async def posted(application: Any, path: str) -> Any:
    """The JSON that an ASGI application answers to a POST without a body, within its lifespan."""
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        parts.append(event.get("body", b""))

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
    where = {"path": path, "raw_path": path.encode(), "query_string": b"", "headers": [], "root_path": ""}
    async with application.router.lifespan_context(application):
        await application({**scope, **where}, receive, send)
    return json.loads(b"".join(parts))
