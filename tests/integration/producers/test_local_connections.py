"""Connections of every driver: what is known about their transaction, and errors that pass unchanged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from checkback_producers import Outcome
from checkback_producers.errors import NotRecorded, UnsafeConnection
from checkback_producers.outbox import SqlOutbox
from reconciler.sql.callers_connection import CallersConnection
from tests.integration.producers.raw_connections import raw_connection
from tests.unit.producers.world import World, message

# ruff: noqa: PT012, SIM117  # the block is what is tested, nested as services nest it


def test_a_transaction_is_open_until_it_ends(world: World) -> None:
    with raw_connection(world.url) as connection:
        local = CallersConnection(connection)
        connection.cursor().execute("INSERT INTO business (name) VALUES ('one')")
        assert local.is_open()
        connection.commit()
        assert not local.is_open()
        connection.cursor().execute("INSERT INTO business (name) VALUES ('two')")
        connection.rollback()
        assert not local.is_open()
    assert not local.is_open(), "closed means rolled back"


def test_a_connection_that_went_back_to_its_pool_is_not_open(world: World) -> None:
    with world.engine.connect() as connection:
        local = CallersConnection(connection)
        assert local.is_open()
    with world.engine.begin() as same_again:
        world.do_business(same_again, "somebody else's")
        assert not local.is_open()


def test_a_scoped_session_and_a_pools_proxy_are_accepted(world: World) -> None:
    session: scoped_session[Session] = scoped_session(sessionmaker(world.engine))
    with world.producer().transaction(message()) as tx:
        tx.record(session)
        session.commit()
    session.remove()
    assert tx.outcome is Outcome.COMMIT
    # The service's own engine: ours leaves BEGIN to SQLAlchemy, which the proxy goes round.
    plain = sa.create_engine(world.url)
    proxy = plain.raw_connection()
    with world.producer().transaction(message()) as raw:
        raw.record(proxy)
        proxy.commit()
    proxy.close()
    plain.dispose()
    assert raw.outcome is Outcome.COMMIT


def test_an_error_that_is_no_databases_fault_passes_unchanged(world: World) -> None:
    """PostgreSQL: the caller's transaction is already aborted. Others: the outbox's state column is gone."""
    producer = world.producer()
    failure: BaseException | None = None
    with pytest.raises(sa.exc.DBAPIError) as raised, producer.transaction(message()) as tx:
        with world.engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                with pytest.raises(sa.exc.ProgrammingError):
                    connection.exec_driver_sql("SELECT FROM WHERE")
                tx.record(connection)
            connection.exec_driver_sql("SELECT FROM WHERE")
    failure = raised.value
    assert type(failure).__module__ == "sqlalchemy.exc"
    assert tx.outcome is Outcome.ROLLBACK


def test_an_outcome_that_cannot_be_read_is_unknown_and_hides_nothing(world: World) -> None:
    producer = world.producer()
    with producer.transaction(message()) as tx:
        with world.engine.begin() as connection:
            tx.record(connection)
        with world.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE reconciler_outbox")
    assert tx.outcome is Outcome.UNKNOWN
    assert "run reconciler db upgrade" in tx.reason
    assert world.halves.ended == []


def test_a_table_that_is_missing_at_record_is_named(world: World) -> None:
    producer = world.producer()
    with pytest.raises(Exception, match="run reconciler db upgrade outbox"), producer.transaction(message()) as tx:
        with world.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE reconciler_outbox")
            connection.exec_driver_sql("DROP TABLE reconciler_outbox_identity")
        with world.engine.begin() as connection:
            tx.record(connection)


def test_a_connection_of_another_kind_of_database_is_refused(
    tmp_path: Path, new_database_url: Callable[[], str]
) -> None:
    world, other = World(new_database_url()), World(f"sqlite:///{tmp_path}/other.db")
    try:
        if world.engine.dialect.name == "sqlite":
            outbox = SqlOutbox("postgresql://nobody@127.0.0.1:1/none")
            outbox._identity = "known from before"
            producer = other.producer()
            producer._parts.outbox.close()  # type: ignore[union-attr]  # it has one
            with pytest.raises(UnsafeConnection, match="the outbox is in postgresql"), other.engine.begin() as c:
                outbox.record(c, None)  # type: ignore[arg-type]  # refused before the entry is looked at
            return
        with pytest.raises(UnsafeConnection, match="is to sqlite"), world.producer().transaction(message()) as tx:
            with other.engine.begin() as connection:
                tx.record(connection)
    finally:
        world.close()
        other.close()


def test_a_sqlite_connection_of_another_thread_is_not_called_rolled_back(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path}/threads.db")
    locals_: list[CallersConnection] = []
    leave = threading.Event()
    ready = threading.Event()

    def hold() -> None:
        with raw_connection(world.url) as connection:
            locals_.append(CallersConnection(connection))
            connection.execute("INSERT INTO business (name) VALUES ('held')")
            ready.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(60)
    assert locals_[0].is_open()
    leave.set()
    thread.join(60)
    assert not locals_[0].is_open()
    world.close()


@pytest.mark.sql
def test_psycopgs_pipeline_mode_is_refused(postgres_url: str) -> None:
    world = World(postgres_url)
    parsed = make_url(postgres_url)
    with psycopg.connect(
        host=parsed.host, port=parsed.port, user=parsed.username, dbname=parsed.database
    ) as connection:
        with pytest.raises(UnsafeConnection, match="pipeline"), world.producer().transaction(message()) as tx:
            with connection.pipeline():
                tx.record(connection)
    world.close()


@pytest.mark.sql
def test_psycopgs_own_transaction_block_on_an_autocommit_connection_is_accepted(postgres_url: str) -> None:
    world = World(postgres_url)
    with raw_connection(postgres_url, autocommit=True) as connection, world.producer().transaction(message()) as tx:
        with connection.transaction():
            tx.record(connection)
    assert tx.outcome is Outcome.COMMIT
    world.close()


@pytest.mark.sql
def test_a_failed_postgres_transaction_that_is_not_ended_is_unknown(postgres_url: str) -> None:
    """A savepoint could still bring it back to life."""
    world = World(postgres_url)
    with raw_connection(postgres_url) as connection, world.producer().transaction(message()) as tx:
        tx.record(connection)
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("SELECT FROM WHERE")
    assert tx.outcome is Outcome.UNKNOWN
    world.close()


def test_an_async_connection_is_refused(world: World) -> None:
    lookalike = type("AsyncConnection", (), {"__module__": "psycopg.connection_async", "cursor": print})()
    with (
        pytest.raises(UnsafeConnection, match="no connection that is known"),
        world.producer().transaction(message()) as tx,
    ):
        tx.record(lookalike)


def test_swallowing_every_error_of_record_is_noticed(world: World) -> None:
    with pytest.raises(NotRecorded), world.producer().transaction(message()) as tx:
        with pytest.raises(UnsafeConnection):
            tx.record("no connection")
    assert tx.outcome is Outcome.ROLLBACK
