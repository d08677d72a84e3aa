"""Handlers in a loop on connections of asyncpg and psycopg themselves."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import async_sessionmaker

from checkback_consumers.errors import IncompleteEffect, UnsafeConnection, UsageError
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from reconciler.wiring.connections import Connections
from reconciler.wiring.replay_worker import build_replay_worker
from tests.integration.producers.faces import async_engine
from tests.polling import eventually
from tests.unit.consumers.loops import LoopThread
from tests.unit.consumers.messages import business, effect_count, effects, message

pytestmark = pytest.mark.sql("postgres")

bare = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])


pooled = pytest.mark.parametrize(
    "engine", ["postgres_server", pytest.param("pgbouncer_server", marks=pytest.mark.sql("pgbouncer"))], indirect=True
)


@pytest.fixture(params=["postgres_server"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """A database with the tables, on a server or behind its pooler, for looking at it."""
    url = request.getfixturevalue(request.param).create_database()
    schema.upgrade(url, "inbox")
    opened = open_engine(url)
    business.create_all(opened)
    yield opened
    opened.dispose()


def connected(engine: sa.Engine, driver: str, **options: Any) -> Callable[[], Any]:
    """A function that returns what has to be awaited for a connection, as services write it."""
    url = make_url(engine.url)
    where: dict[str, Any] = {"host": url.host, "port": url.port, "user": url.username, **options}

    async def connect() -> Any:
        if driver == "asyncpg":
            return await import_module("asyncpg").connect(database=url.database, statement_cache_size=0, **where)
        return await psycopg.AsyncConnection.connect(dbname=url.database, prepare_threshold=None, **where)

    return connect


async def pay(received: Any, connection: Any) -> None:
    await connection.execute(f"INSERT INTO effects (unique_key, amount) VALUES ('{received.unique_key}', 1)")
    if received.body == b"fails":
        raise ZeroDivisionError


@bare
@pooled
def test_an_effect_happens_once_and_none_stays_of_a_failure(engine: sa.Engine, driver: str, loop: LoopThread) -> None:
    bill = loop.opened(transactional_handler(connected(engine, driver), group="billing", is_batched=True)(pay))
    received, failing = message(), message(body=b"fails")
    assert [bill.apply(received), bill.apply(received)] == [InboxAnswer.NEW, InboxAnswer.DUPLICATE]
    assert bill(failing) is ConsumeStatus.RECONSUME_LATER
    batch = [message(), message(), message()]
    assert bill.listener(batch) is ConsumeStatus.CONSUME_SUCCESS
    assert bill.listener([message(), failing]) == FailedAt(1)
    assert [effect_count(engine, one.unique_key) for one in (received, failing, *batch)] == [1, 0, 1, 1, 1]


def test_asyncpgs_pool_gives_and_gets_each_connection(engine: sa.Engine, loop: LoopThread) -> None:
    url = make_url(engine.url)

    async def make() -> Any:
        pools: Any = import_module("asyncpg")
        return await pools.create_pool(
            host=url.host, port=url.port, user=url.username, database=url.database, min_size=1, max_size=2
        )

    pool = loop.run(make())
    bill = loop.opened(transactional_handler(pool.acquire, group="billing")(pay))
    received = [message() for _ in range(5)]
    assert [bill.apply(one) for one in (*received, received[0])] == [InboxAnswer.NEW] * 5 + [InboxAnswer.DUPLICATE]
    assert bill(message(body=b"fails")) is ConsumeStatus.RECONSUME_LATER
    assert pool.get_idle_size() == pool.get_size()
    assert effect_count(engine) == 5
    loop.run(pool.close())


@pytest.mark.parametrize("given", ["engine", "session"])
def test_an_effect_inside_a_transaction_that_was_left_in_the_pool_is_not_acknowledged(
    engine: sa.Engine, loop: LoopThread, given: str
) -> None:
    """sqlalchemy/sqlalchemy, issue 13381: SQLAlchemy's COMMIT ends a savepoint there."""
    own = loop.kept(async_engine(engine.url.render_as_string(hide_password=False), pool_size=1, max_overflow=0))

    async def leave_one() -> None:
        async with own.connect() as connection:
            below: Any = (await connection.get_raw_connection()).driver_connection
            await below.transaction().start()

    async def paid(received: Any, connection: Any) -> None:
        await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))

    loop.run(leave_one())
    database: Any = own if given == "engine" else async_sessionmaker(own)
    bill = loop.opened(transactional_handler(database, group="billing")(paid))
    received = message()
    with pytest.raises(UnsafeConnection, match="never ended"):
        bill.apply(received)
    eventually(lambda: bill(received) is ConsumeStatus.CONSUME_SUCCESS, within_seconds=60, message="it comes again")
    assert effect_count(engine, received.unique_key) == 1


@bare
@pooled
def test_a_swallowed_error_is_found_before_the_commit_that_would_be_a_rollback(
    engine: sa.Engine, driver: str, loop: LoopThread
) -> None:
    """asyncpg calls a failed transaction an open one."""

    async def swallows(received: Any, connection: Any) -> None:
        with suppress(Exception):
            await connection.execute("SELECT FROM WHERE")

    bill = loop.opened(transactional_handler(connected(engine, driver), group="billing", is_batched=True)(swallows))
    with pytest.raises(UsageError, match="ended the inbox's transaction"):
        bill.apply(message())
    assert bill.listener([message(), message()]) == FailedAt(0)


@bare
def test_a_commit_of_the_handlers_own_leaves_its_key_refused(engine: sa.Engine, driver: str, loop: LoopThread) -> None:
    async def commits(received: Any, connection: Any) -> None:
        await pay(received, connection)
        await connection.execute("COMMIT")

    bill = loop.opened(transactional_handler(connected(engine, driver), group="billing")(commits))
    received = message()
    with pytest.raises(UsageError, match="ended the inbox's transaction"):
        bill.apply(received)
    with pytest.raises(IncompleteEffect):
        bill.apply(received)
    assert effect_count(engine, received.unique_key) == 1


def test_reconciler_replay_runs_an_asynchronous_handler_in_a_loop_of_its_own(engine: sa.Engine) -> None:
    postgres_url = engine.url.render_as_string(hide_password=False)
    ledger_metadata.create_all(engine)
    subscription = {"topic": "ORDERS", "group": "billing", "inbox_url": postgres_url}
    settings = load_settings(
        Path(__file__).parents[3] / "config" / "reconciler.toml",
        {"RECONCILER_LEDGER__URL": postgres_url, "RECONCILER_SUBSCRIPTIONS": json.dumps([subscription])},
    )
    bill = transactional_handler(connected(engine, "asyncpg"), group="billing")(pay)
    before = threading.active_count()
    with Connections(settings) as connections:
        worker = build_replay_worker(connections, settings.subscriptions[0], bill)
        assert worker._handler.apply(message()) is InboxAnswer.NEW
    with pytest.raises(UsageError, match="not open"):
        bill.apply(message())
    eventually(lambda: threading.active_count() <= before, within_seconds=60)
    assert effect_count(engine) == 1


@bare
def test_a_value_that_postgresql_refuses_is_of_the_message(engine: sa.Engine, driver: str, loop: LoopThread) -> None:
    """Not of a database that is away: a replay worker would try it for ever."""
    handled = transactional_handler(connected(engine, driver), group="billing", dedupe_by=lambda _: "a NUL: \x00")
    with pytest.raises(Exception, match=r"(?i)NUL|0x00") as raised:
        loop.opened(handled(pay)).apply(message())
    assert type(raised.value).__name__ != "InboxNotReached"


def test_psycopgs_autocommit_and_pipeline_mode_are_refused(engine: sa.Engine, loop: LoopThread) -> None:
    @asynccontextmanager
    async def pipelined() -> AsyncIterator[Any]:
        async with await connected(engine, "psycopg")() as connection, connection.pipeline():
            yield connection

    @asynccontextmanager
    async def begun() -> AsyncIterator[Any]:
        async with await connected(engine, "psycopg", autocommit=True)() as connection:
            await connection.execute("BEGIN")
            yield connection

    for database, words in (
        (pipelined, "pipeline"),
        (connected(engine, "psycopg", autocommit=True), "autocommit"),
        (begun, "begun by hand"),
    ):
        with pytest.raises(UnsafeConnection, match=words):
            loop.opened(transactional_handler(database, group="billing")(pay)).apply(message())
    assert effect_count(engine) == 0


def under_sqlalchemy(engine: sa.Engine, loop: LoopThread) -> Any:
    """The same driver, as most services use it."""
    return loop.kept(async_engine(engine.url.render_as_string(hide_password=False)))


@pooled
@pytest.mark.parametrize("is_bare", [True, False], ids=["bare", "under-sqlalchemy"])
def test_after_a_raw_rollback_asyncpg_writes_nothing_that_would_be_durable_without_its_inbox_row(
    engine: sa.Engine, loop: LoopThread, is_bare: bool
) -> None:
    """The driver begins no other transaction by itself: each statement would be committed at once, by each delivery."""
    swallowed: list[Exception] = []

    async def rolls_back(received: Any, connection: Any) -> None:
        execute = connection.execute if is_bare else connection.exec_driver_sql
        for sql in ("ROLLBACK", f"INSERT INTO effects (unique_key, amount) VALUES ('{received.unique_key}', 1)"):
            try:
                await execute(sql)
            except Exception as error:
                swallowed.append(error)

    database = connected(engine, "asyncpg") if is_bare else under_sqlalchemy(engine, loop)
    bill = loop.opened(transactional_handler(database, group="billing", is_batched=True)(rolls_back))
    for _ in range(2):
        with pytest.raises(UsageError, match="ended the inbox's transaction"):
            bill.apply(message())
    assert bill.listener([message(), message()]) == FailedAt(0)
    assert len(swallowed) >= 3
    assert effect_count(engine) == 0
