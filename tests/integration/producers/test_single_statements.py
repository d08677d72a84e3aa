"""Statements of their own on connections that a pool has kept: lost ones, locked rows, missing tables."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from types import FrameType
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import MARKED_KEYS_MAX, SqlOutbox
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.sql.engines import open_engine
from reconciler.sql.single_statements import MARKERS, SingleStatements
from reconciler.sql.tables import outbox_metadata
from tests.polling import eventually
from tests.unit.producers.world import World, new_key


@pytest.fixture
def outbox(world: World) -> Iterator[SqlOutbox]:
    with closing(SqlOutbox(world.url)) as opened:
        yield opened


def cut_others(engine: sa.Engine) -> int:
    """Ends every other connection to the database; how many."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            ended = connection.execute(
                sa.text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            ).all()
            return len(ended)
        own = connection.execute(sa.text("SELECT connection_id()")).scalar_one()
        rows: Any = connection.execute(
            sa.text("SELECT id FROM information_schema.processlist WHERE db = database() AND id <> :own"), {"own": own}
        )
        ids = [row.id for row in rows]
        for number in ids:
            connection.exec_driver_sql(f"KILL {int(number)}")
        return len(ids)


def test_connections_that_were_lost_in_the_pool_cost_no_answer(world: World, outbox: SqlOutbox) -> None:
    if world.engine.dialect.name == "sqlite":
        pytest.skip("a file has no server that could end a connection")
    key = new_key()
    world.insert_row(key)
    assert outbox.find(key) is not None
    assert cut_others(world.engine) >= 1
    assert outbox.find(key) is not None, "read on a new connection"
    assert cut_others(world.engine) >= 1
    assert outbox.mark_announced([key]) == 1


def test_connections_that_were_lost_in_the_pool_cost_no_transaction(world: World) -> None:
    if world.engine.dialect.name == "sqlite":
        pytest.skip("a file has no server that could end a connection")
    with world.engine.connect(), world.engine.connect():
        pass  # two lie in the pool
    operator = open_engine(world.url)
    assert cut_others(operator) >= 2
    operator.dispose()
    key = new_key()
    world.insert_row(key)
    assert world.state(key) == "NEW"


@pytest.mark.sql("postgres")
def test_a_connection_in_use_while_others_were_lost_keeps_no_session_for_ever(postgres_url: str) -> None:
    engine, operator = open_engine(postgres_url), open_engine(postgres_url)
    with engine.connect() as in_use:
        driver_connection = in_use.connection.driver_connection
        with engine.connect() as lost:
            number = lost.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
        with operator.connect() as connection:
            connection.execute(sa.text("SELECT pg_terminate_backend(:number, 10000)"), {"number": number})
        with engine.begin() as connection:
            assert connection.execute(sa.text("SELECT 1")).scalar() == 1
        assert in_use.execute(sa.text("SELECT 2")).scalar() == 2
    assert driver_connection is not None
    assert driver_connection.closed
    with engine.connect() as first, engine.connect() as second:
        kept = {first.connection.driver_connection, second.connection.driver_connection}
    assert not any(connection is None or connection.closed for connection in kept), "the new pool keeps its own"
    engine.dispose()
    operator.dispose()


@pytest.mark.pooled
def test_an_outcome_is_read_by_a_new_statement_not_from_an_old_snapshot(world: World, outbox: SqlOutbox) -> None:
    key = new_key()
    assert outbox.find(key) is None
    world.insert_row(key)
    fact = outbox.find(key)
    assert fact is not None
    assert fact.is_committed


@pytest.mark.pooled
def test_marks_of_many_rows_touch_each_once_and_leave_tombstones(world: World, outbox: SqlOutbox) -> None:
    keys = [new_key() for _ in range(MARKED_KEYS_MAX + 5)]
    for key in keys[:3]:
        world.insert_row(key)
    world.insert_row(keys[-1])
    world.insert_row(keys[-2], state="ROLLED_BACK")
    assert outbox.mark_announced(keys) == 4
    assert outbox.mark_settled(keys[:2]) == 2
    assert [world.state(key) for key in (keys[0], keys[2], keys[-1], keys[-2])] == [
        "SETTLED", "ANNOUNCED", "ANNOUNCED", "ROLLED_BACK",
    ]  # fmt: skip
    assert outbox.mark_announced([]) == 0


@pytest.mark.pooled
def test_a_locked_row_is_away_after_its_time_and_the_connection_is_good_again(world: World) -> None:
    key = new_key()
    world.insert_row(key)
    single = SingleStatements(world.url, lock_timeout_seconds=1.0, pool_size=1)
    marker = MARKERS[world.engine.dialect.name]
    touch = f"UPDATE reconciler_outbox SET announced_at_ms = 7 WHERE unique_key = {marker}"
    with closing(single):
        with world.engine.begin() as connection:
            connection.execute(sa.text("UPDATE reconciler_outbox SET announced_at_ms = 5"))
            with pytest.raises(DatabaseAway):
                single.update(touch, (key,))
        assert single.update(touch, (key,)) == 1
    assert world.row(key).announced_at_ms == 7


def test_a_missing_table_is_named(world: World, outbox: SqlOutbox) -> None:
    outbox_metadata.drop_all(world.engine)
    with pytest.raises(ConfigurationError, match="db upgrade"):
        outbox.find(new_key())
    outbox_metadata.create_all(world.engine)
    assert outbox.find(new_key()) is None


def test_a_server_that_is_gone_is_away(world: World) -> None:
    if world.engine.dialect.name == "sqlite":
        pytest.skip("a file has no server")
    nobody = sa.make_url(world.url).set(port=1)
    with closing(SingleStatements(nobody.render_as_string(hide_password=False))) as single, pytest.raises(DatabaseAway):
        single.select_one("SELECT 1", ())


@pytest.mark.pooled
def test_every_statement_is_committed_by_itself(world: World) -> None:
    key = new_key()
    world.insert_row(key)
    marker = MARKERS[world.engine.dialect.name]
    with closing(SingleStatements(world.url, pool_size=1)) as single:
        single.update(f"UPDATE reconciler_outbox SET announced_at_ms = 9 WHERE unique_key = {marker}", (key,))
        assert world.row(key).announced_at_ms == 9
        found = single.select_one(f"SELECT announced_at_ms FROM reconciler_outbox WHERE unique_key = {marker}", (key,))
        assert found == (9,)


class _TimeIsUp(BaseException):
    """As gevent's Timeout: the driver cancels nothing for it."""


@pytest.mark.sql("postgres")
def test_a_statement_that_was_interrupted_leaves_no_answer_to_the_next_one(postgres_url: str) -> None:
    watcher = open_engine(postgres_url)
    find = sa.text("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)' AND wait_event = 'PgSleep'")

    def is_running() -> bool:
        with watcher.connect() as connection:
            return bool(connection.execute(find).scalar_one())

    def interrupt() -> None:
        eventually(is_running, within_seconds=20)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGUSR1, leave)
    other = threading.Thread(target=interrupt)
    try:
        with closing(SingleStatements(postgres_url, pool_size=1)) as single:
            other.start()
            with pytest.raises(_TimeIsUp):
                single.select_one("SELECT pg_sleep(30)", ())
            assert single.select_one("SELECT 2", ()) == (2,)
    finally:
        other.join()
        signal.signal(signal.SIGUSR1, before)
        watcher.dispose()
