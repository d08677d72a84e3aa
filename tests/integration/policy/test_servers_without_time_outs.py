"""A server that does not end statements by itself: the reconciler goes on as before, and doctor names it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest
import sqlalchemy as sa

from reconciler.commands.doctor.checks import examine
from reconciler.evidence.outbox import ReadOutbox, SqlOutboxReader
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.sql.engines import close_engine, open_engine
from reconciler.sql.time_outs import missing_time_out
from reconciler.wiring.connections import Connections
from tests.services import mariadb
from tests.services.requirements import require

TOPIC = "ORDERS"
STATEMENT_SECONDS = 5.0


@pytest.fixture(scope="module")
def refusing() -> Iterator[mariadb.MariaDBServer]:
    """A server that calls itself a MySQL, and refuses the setting that one has."""
    require(mariadb.missing())
    with mariadb.MariaDBServer(options={"version": "5.7.19"}) as server:
        yield server


def missing(url: str, seconds: float | None = STATEMENT_SECONDS) -> str | None:
    engine = open_engine(url, read_only=True, statement_seconds=seconds)
    try:
        return missing_time_out(engine)
    finally:
        close_engine(engine)


@pytest.mark.sql("mariadb")
def test_a_server_that_refuses_the_setting_is_asked_as_before_and_told_once(
    refusing: mariadb.MariaDBServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = refusing.create_database()
    schema.upgrade(url, "outbox")
    read = ReadOutbox(producer_group="orders", topics=frozenset({TOPIC}), url=url)
    with caplog.at_level(logging.WARNING), closing(SqlOutboxReader([read])) as reader:
        assert reader.look_up(TOPIC, {"A" * 32: 0})["A" * 32].is_absent
    assert caplog.text.count("statements_not_ended") == 1
    assert missing(url) == "max_execution_time"


@pytest.mark.sql("mariadb")
def test_doctor_names_the_setting_and_what_it_means(refusing: mariadb.MariaDBServer) -> None:
    url = refusing.create_database()
    schema.upgrade(url, "ledger")
    settings = Settings.model_validate(
        {
            "environment": "test",
            "redis": {"url": "redis://127.0.0.1:1/0"},
            "ledger": {"url": url},
            "rocketmq": {"name_servers": "127.0.0.1:1"},
            "producers": [{"group": "orders", "topics": [TOPIC]}],
            "subscriptions": [{"topic": TOPIC, "group": "billing"}],
        }
    )
    with Connections(settings) as connections:
        told = [one for one in examine(connections) if "max_execution_time" in one.found]
    assert [(one.check, one.level) for one in told] == [("ledger", "note")]
    assert "SET max_execution_time" in told[0].remedy


def test_servers_that_end_statements_are_not_named(database_url: str) -> None:
    assert missing(database_url) is None
    assert missing(database_url, None) is None


@pytest.mark.sql("postgres")
def test_a_setting_that_a_proxy_loses_is_named(postgres_url: str) -> None:
    engine = open_engine(postgres_url, read_only=True, statement_seconds=STATEMENT_SECONDS)

    @sa.event.listens_for(engine, "begin")
    def lose(connection: sa.Connection) -> None:
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")

    assert missing_time_out(engine) == "statement_timeout"
    close_engine(engine)
