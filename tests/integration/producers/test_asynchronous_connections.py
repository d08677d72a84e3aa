"""Connections of asyncpg and psycopg themselves, without SQLAlchemy."""

# ruff: noqa: PT012, SIM117  # the block is what is tested, nested as services nest it

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from checkback_producers import AsyncTransactionalProducer, Outcome
from checkback_producers.errors import NotCommitted, NotRecorded, RolledBackAlready, UnsafeConnection
from reconciler.sql.callers_connection import CallersConnection
from tests.unit.producers.world import World, message

pytestmark = pytest.mark.sql("postgres")

bare = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
Act = Callable[[AsyncTransactionalProducer], Awaitable[Any]]


@pytest.fixture(params=["postgres_server"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A database, on a server or behind its pooler."""
    made = World(request.getfixturevalue(request.param).create_database())
    yield made
    made.close()


@asynccontextmanager
async def connected(world: World, driver: str, *, autocommit: bool = False) -> AsyncIterator[Any]:
    """As services open them, for a pooler, too."""
    url = make_url(world.url)
    where: dict[str, Any] = {"host": url.host, "port": url.port, "user": url.username}
    connection: Any
    if driver == "asyncpg":
        connection = await import_module("asyncpg").connect(database=url.database, statement_cache_size=0, **where)
    else:
        connection = await psycopg.AsyncConnection.connect(
            dbname=url.database, prepare_threshold=None, autocommit=autocommit, **where
        )
    try:
        yield connection
    finally:
        await connection.close()


def run(world: World, act: Act) -> Any:
    """With a producer that is open."""

    async def serve() -> Any:
        async with AsyncTransactionalProducer(world.made()) as producer:
            return await act(producer)

    return asyncio.run(serve())


@bare
@pytest.mark.parametrize(
    "world", ["postgres_server", pytest.param("pgbouncer_server", marks=pytest.mark.sql("pgbouncer"))], indirect=True
)
def test_its_commit_and_its_rollback_are_those_of_the_message(world: World, driver: str) -> None:
    async def act(producer: AsyncTransactionalProducer) -> list[Any]:
        async with connected(world, driver) as connection:
            async with producer.transaction(message()) as first, connection.transaction():
                await first.record(connection)
                await connection.execute("INSERT INTO business (name) VALUES ('done')")
            second, third = producer.transaction(message()), producer.transaction(message())
            with pytest.raises(ZeroDivisionError):
                async with second, connection.transaction():
                    await second.record(connection)
                    raise ZeroDivisionError
            world.insert_row(third.unique_key, state="ROLLED_BACK")
            with pytest.raises(RolledBackAlready):
                async with third, connection.transaction():
                    await third.record(connection)
        return [first, second, third]

    blocks = run(world, act)
    assert [tx.outcome for tx in blocks] == [Outcome.COMMIT, Outcome.ROLLBACK, Outcome.ROLLBACK]
    assert world.halves.ended == [(tx.unique_key, tx.outcome) for tx in blocks]
    assert world.did_business("done")
    assert [world.state(tx.unique_key) for tx in blocks] == ["ANNOUNCED", "ROLLED_BACK", "ROLLED_BACK"]


@bare
def test_a_transaction_that_outlives_the_block_is_left_to_check_back(world: World, driver: str) -> None:
    async def act(producer: AsyncTransactionalProducer) -> Any:
        async with connected(world, driver) as connection, connection.transaction():
            async with producer.transaction(message()) as tx:
                await tx.record(connection)
        return tx

    tx = run(world, act)
    assert (tx.outcome, tx.reason) == (Outcome.UNKNOWN, "the recorded connection is still in a transaction")
    assert world.halves.ended == []
    assert world.state(tx.unique_key) == "NEW"


@bare
def test_a_connection_that_cannot_be_asked_counts_as_open(
    world: World, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still commit: a row that is not visible is no rollback."""

    def fail(_self: CallersConnection) -> bool:
        raise ConnectionError

    monkeypatch.setattr(CallersConnection, "is_open", fail)

    async def act(producer: AsyncTransactionalProducer) -> list[Any]:
        async with connected(world, driver) as connection:
            async with producer.transaction(message()) as first, connection.transaction():
                await first.record(connection)
            async with connection.transaction(), producer.transaction(message()) as second:
                await second.record(connection)
        return [first, second]

    first, second = run(world, act)
    assert (first.outcome, second.outcome) == (Outcome.COMMIT, Outcome.UNKNOWN)
    assert world.halves.ended == [(first.unique_key, Outcome.COMMIT)]


@bare
def test_a_connection_that_commits_each_statement_is_refused(world: World, driver: str) -> None:
    async def act(producer: AsyncTransactionalProducer) -> None:
        async with connected(world, driver, autocommit=True) as connection:
            with pytest.raises(UnsafeConnection, match="autocommit"):
                async with producer.transaction(message()) as tx:
                    await tx.record(connection)

    run(world, act)
    assert [outcome for _, outcome in world.halves.ended] == [Outcome.ROLLBACK]


@bare
def test_a_failed_transaction_is_rolled_back_with_its_message(world: World, driver: str) -> None:
    """PostgreSQL answers COMMIT with ROLLBACK then, and the driver says nothing."""

    async def act(producer: AsyncTransactionalProducer) -> None:
        async with connected(world, driver) as connection:
            with pytest.raises((NotCommitted, NotRecorded)):
                async with producer.transaction(message()) as tx, connection.transaction():
                    await tx.record(connection)
                    with pytest.raises(Exception, match="syntax error"):
                        await connection.execute("SELECT FROM WHERE")

    run(world, act)
    assert [outcome for _, outcome in world.halves.ended] == [Outcome.ROLLBACK]


def test_psycopgs_pipeline_mode_is_refused(world: World) -> None:
    async def act(producer: AsyncTransactionalProducer) -> None:
        async with connected(world, "psycopg") as connection:
            with pytest.raises(UnsafeConnection, match="pipeline"):
                async with producer.transaction(message()) as tx, connection.pipeline():
                    await tx.record(connection)

    run(world, act)
    assert [outcome for _, outcome in world.halves.ended] == [Outcome.ROLLBACK]


def test_a_synchronous_connection_is_refused(world: World) -> None:
    async def act(producer: AsyncTransactionalProducer) -> None:
        with pytest.raises(UnsafeConnection, match="no asynchronous connection"):
            async with producer.transaction(message()) as tx:
                with world.engine.begin() as connection:
                    await tx.record(connection)

    run(world, act)
    assert [outcome for _, outcome in world.halves.ended] == [Outcome.ROLLBACK]
