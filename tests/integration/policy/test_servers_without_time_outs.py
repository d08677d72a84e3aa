"""A server that does not end statements by itself: the reconciler goes on as before, and doctor names it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest
import sqlalchemy as sa

from reconciler.commands.doctor.checks import examine
from reconciler.errors import ConfigurationError
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.policy.commit_evidence import CommitSource
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.pools import close_engine
from reconciler.sql.single_statements import SingleStatements
from reconciler.sql.time_outs import missing_time_out
from reconciler.wiring.connections import Connections
from tests.services import mariadb
from tests.services.gate import Gate
from tests.services.postgres import PostgresServer
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
    read = CommitSource(producer_group="orders", topics=frozenset({TOPIC}), url=url)
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
        told = [one for one in (found.as_row() for found in examine(connections)) if "max_execution_time" in one.found]
    assert [(one.check, one.level) for one in told] == [("ledger", "note")]
    assert "SET max_execution_time" in told[0].remedy


def test_servers_that_end_statements_are_not_named(database_url: str) -> None:
    assert missing(database_url) is None
    assert missing(database_url, None) is None


@pytest.fixture
def refused_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A PostgreSQL behind something that makes it a product without statement_timeout."""
    url = postgres_server.create_database()
    schema.upgrade(url, "outbox")
    with Gate(postgres_server.port, rewrites=(b"statement_timeout", b"statement_timeouX")) as gate:
        yield url.replace(f":{postgres_server.port}/", f":{gate.port}/")


@pytest.mark.sql("postgres")
def test_a_postgresql_product_without_the_setting_is_asked_as_before_and_told_once(
    refused_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    read = CommitSource(producer_group="orders", topics=frozenset({TOPIC}), url=refused_url)
    with caplog.at_level(logging.WARNING), closing(SqlOutboxReader([read])) as reader:
        for _ in range(3):
            assert reader.look_up(TOPIC, {"A" * 32: 0})["A" * 32].is_absent
    assert caplog.text.count("statements_not_ended") == 1
    assert missing(refused_url) == "statement_timeout"


@pytest.mark.sql("postgres")
def test_single_statements_do_without_the_setting_and_execute_nothing_twice(
    refused_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), closing(SingleStatements(refused_url, statement_seconds=5)) as single:
        text = "UPDATE reconciler_outbox_identity SET swept_at_ms = coalesce(swept_at_ms, 0) + 1 WHERE id = %s"
        assert single.update(text, (1,)) == 1
        assert single.select_one("SELECT swept_at_ms FROM reconciler_outbox_identity WHERE id = %s", (1,)) == (1,)
        with pytest.raises(ConfigurationError, match="lacks a table"):
            single.select_one("SELECT 1 FROM not_there WHERE id = %s", (1,))
    assert caplog.text.count("statements_not_ended") == 1


@pytest.mark.sql("postgres")
def test_a_statement_that_is_refused_for_itself_keeps_the_time_outs(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), closing(SingleStatements(postgres_url, statement_seconds=5)) as single:
        with pytest.raises(ConfigurationError, match="lacks a table"):
            single.select_one("SELECT 1 FROM not_there WHERE id = %s", (1,))
        assert single.select_one("SELECT current_setting('statement_timeout')", ()) == ("4s",)
    assert "statements_not_ended" not in caplog.text


@pytest.mark.sql("postgres")
def test_a_setting_that_a_proxy_loses_is_named(postgres_url: str) -> None:
    engine = open_engine(postgres_url, read_only=True, statement_seconds=STATEMENT_SECONDS)

    @sa.event.listens_for(engine, "begin")
    def lose(connection: sa.Connection) -> None:
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")

    assert missing_time_out(engine) == "statement_timeout"
    close_engine(engine)
