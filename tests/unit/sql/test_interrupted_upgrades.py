"""An index is built beside processes that go on writing, and an interrupted upgrade is made good."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa
from alembic import command

from reconciler.errors import DatabaseAway
from reconciler.sql import schema
from reconciler.sql.engines import open_engine, reading, writing
from tests.engines import begun
from tests.polling import eventually

INDEX = "ix_reconciler_candidate_undecided"
INSERT = sa.text(
    "INSERT INTO reconciler_candidate (environment, topic, consumer_group, unique_key, shard, state, verdict, evidence,"
    " attempts, first_seen_ms, next_at_ms, updated_at_ms)"
    " VALUES ('prod', 'ORDERS', 'billing', :key, 0, 'OPEN', 'UNKNOWN', '{}', 0, 1, 1, 1)"
)


def ledger_of_an_upgrade_that_was_interrupted(url: str) -> None:
    """Before it built the index: the columns of its revision are there, as databases leave them that commit them."""
    config = schema._config("ledger")
    with begun(url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0013_subscription")
        for column in ("undecided_by VARCHAR(32)", "undecided_since_ms BIGINT"):
            connection.exec_driver_sql(f"ALTER TABLE reconciler_candidate ADD COLUMN {column}")


def is_indexed(engine: sa.Engine) -> bool:
    with reading(engine) as connection:
        return INDEX in {index["name"] for index in sa.inspect(connection).get_indexes("reconciler_candidate")}


@pytest.mark.pooled
def test_a_writer_whose_transaction_lasts_is_neither_stopped_nor_followed_by_a_queue_of_writers(
    database_url: str,
) -> None:
    ledger_of_an_upgrade_that_was_interrupted(database_url)
    engine = open_engine(database_url)
    if engine.dialect.name == "sqlite":
        pytest.skip("one writer at a time, whoever it is")
    with engine.connect() as slow:
        slow.execute(INSERT, {"key": "A" * 32})
        outcome: list[object] = []
        building = threading.Thread(target=lambda: outcome.append(_upgraded(database_url)))
        building.start()
        eventually(lambda: _is_building(engine), within_seconds=30)
        with writing(engine) as another:  # within its lock time-out, while the build waits for the slow one
            another.execute(INSERT, {"key": "B" * 32})
        slow.commit()
    building.join(60)
    assert outcome in (["0018_half"], [DatabaseAway])
    assert schema.upgrade(database_url, "ledger") == "0018_half", "what gave up goes on where it was"
    assert is_indexed(engine)
    with reading(engine) as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM reconciler_candidate")) == 2
    engine.dispose()


@pytest.mark.pooled
def test_a_connection_that_is_lost_while_the_index_is_built_is_told_as_a_database_that_is_away(
    database_url: str,
) -> None:
    ledger_of_an_upgrade_that_was_interrupted(database_url)
    engine = open_engine(database_url)
    if engine.dialect.name == "sqlite":
        pytest.skip("no connection")
    with engine.connect() as slow:
        slow.execute(INSERT, {"key": "A" * 32})
        outcome: list[object] = []
        building = threading.Thread(target=lambda: outcome.append(_upgraded(database_url)))
        building.start()
        eventually(lambda: _is_building(engine), within_seconds=30)
        if engine.dialect.name == "postgresql":
            slow.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%%'"
            )
        else:
            asked = "SELECT id FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE%%'"
            slow.exec_driver_sql(f"KILL {slow.exec_driver_sql(asked).scalar_one()}")
        building.join(60)
        slow.rollback()
    assert outcome == [DatabaseAway]
    engine.dispose()


def test_what_an_interrupted_upgrade_left_is_made_good(database_url: str) -> None:
    ledger_of_an_upgrade_that_was_interrupted(database_url)
    engine = open_engine(database_url)
    if engine.dialect.name == "sqlite":
        pytest.skip("columns, index and revision are one transaction")
    with writing(engine) as connection:
        connection.exec_driver_sql(f"CREATE INDEX {INDEX} ON reconciler_candidate (environment, undecided_by)")
    if engine.dialect.name == "postgresql":
        with writing(engine) as connection:  # as CREATE INDEX CONCURRENTLY leaves it
            connection.exec_driver_sql(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{INDEX}'::regclass")
    assert schema.upgrade(database_url, "ledger") == "0018_half"
    assert is_indexed(engine)
    if engine.dialect.name == "postgresql":
        with reading(engine) as connection:
            valid = f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{INDEX}'::regclass"
            assert connection.exec_driver_sql(valid).scalar_one() is True
    engine.dispose()


def _upgraded(url: str) -> object:
    try:
        return schema.upgrade(url, "ledger")
    except DatabaseAway:
        return DatabaseAway


def _is_building(engine: sa.Engine) -> bool:
    asked = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%'",
        "mysql": "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE%'",
    }
    with reading(engine) as connection:
        query = asked["postgresql" if connection.dialect.name == "postgresql" else "mysql"]
        return bool(connection.exec_driver_sql(query.replace("%", "%%")).scalar_one())
