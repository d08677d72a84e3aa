"""Hand-over rows on every database, with workers that really compete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.replay_worker import ReplayCounts, ReplayWorker
from reconciler.contract.hand_over import encode_hand_over
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from reconciler.sql.engines import writing
from reconciler.sql.postgres_deadline import BoundedConnection
from reconciler.sql.tables import hold, ledger_metadata, repair
from reconciler.wiring.connections import Connections
from reconciler.wiring.replay_worker import build_replay_worker
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, message, new_key
from tests.unit.consumers.test_hand_over_message import stored

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    with inbox_engine(database_url) as opened:
        ledger_metadata.create_all(opened)
        yield opened


def pay(received: ConsumedMessage, connection: sa.Connection) -> None:
    connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))
    if received.body == b"bad":
        raise ValueError("a NUL \x00 in the reason")


@pytest.mark.pooled
def test_competing_workers_run_each_row_once(engine: sa.Engine) -> None:
    keys = [new_key() for _ in range(30)]
    with writing(engine) as connection:
        for number, key in enumerate(keys):
            body = b"bad" if number == 0 else bytes(range(256))
            connection.execute(
                repair.insert().values(
                    environment="test", topic="ORDERS", scope="billing", unique_key=key, state="OPEN",
                    rung="hand-over", attempts=0, next_at_ms=0, created_at_ms=number,
                    message=encode_hand_over(stored(unique_key=key, body=body)),
                )
            )  # fmt: skip
    handler = transactional_handler(engine, group="billing")(pay)

    def work(_: int) -> ReplayCounts:
        return ReplayWorker(handler, environment="test", topics="ORDERS", queue=HandOverRows(engine)).run_once()

    with ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(work, range(4)), start=ReplayCounts())
    assert (total.applied, total.already_applied, total.failed) == (29, 0, 0)
    assert total.postponed >= 1  # more than once where the other rows took longer than its first back-off
    assert effect_count(engine) == 29
    with engine.connect() as connection:
        rows = connection.execute(sa.select(repair).order_by(repair.c.created_at_ms)).all()
    assert [row.state for row in rows] == ["OPEN", *["DONE"] * 29]
    assert "a NUL \ufffd" in rows[0].answer
    assert rows[0].next_at_ms > rows[0].sent_at_ms
    assert all(row.message is None and row.done_at_ms >= row.sent_at_ms > 0 for row in rows[1:])


LOGIN, PASSWORD = "replay", "replay"


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ]
)
def worker_login(request: pytest.FixtureRequest) -> Iterator[tuple[sa.Engine, str, str]]:
    """The owner's engine, the URL of a login with the rights of the last release, and how a GRANT names it."""
    with inbox_engine(request.getfixturevalue(f"{request.param}_server").create_database()) as owner:
        ledger_metadata.create_all(owner)
        is_postgres = request.param == "postgres"
        who = LOGIN if is_postgres else f"'{LOGIN}'@'127.0.0.1'"
        with owner.begin() as connection:
            if is_postgres:
                connection.exec_driver_sql(f"DROP ROLE IF EXISTS {LOGIN}")
                connection.exec_driver_sql(f"CREATE ROLE {LOGIN} LOGIN PASSWORD '{PASSWORD}'")
            else:
                connection.exec_driver_sql(f"CREATE OR REPLACE USER {who} IDENTIFIED BY '{PASSWORD}'")
            connection.exec_driver_sql(f"GRANT SELECT, UPDATE ON {repair.name} TO {who}")
        yield owner, owner.url.set(username=LOGIN, password=PASSWORD).render_as_string(hide_password=False), who
        with owner.begin() as connection:
            connection.exec_driver_sql(f"DROP OWNED BY {LOGIN}" if is_postgres else f"DROP USER {who}")


def test_a_worker_that_may_not_read_holds_runs_nothing_and_names_the_right(
    worker_login: tuple[sa.Engine, str, str],
) -> None:
    owner, url, who = worker_login
    key = new_key()
    with writing(owner) as connection:
        connection.execute(
            repair.insert().values(
                environment="test", topic="ORDERS", scope="billing", unique_key=key, state="OPEN", rung="hand-over",
                attempts=0, next_at_ms=0, created_at_ms=1, message=encode_hand_over(stored(unique_key=key)),
            )
        )  # fmt: skip
    handler = transactional_handler(owner, group="billing")(pay)
    worker = ReplayWorker(handler, environment="test", topics="ORDERS", ledger_url=url)
    with pytest.raises(ConfigurationError, match=f"GRANT SELECT ON {hold.name}"):
        worker.run_once()
    with writing(owner) as connection:
        assert connection.execute(sa.select(repair.c.state)).scalar_one() == "OPEN"
        connection.exec_driver_sql(f"GRANT SELECT ON {hold.name} TO {who}")
    assert worker.run_once() == ReplayCounts(applied=1)
    worker.close()


def test_reconciler_replay_gives_the_service_s_own_statements_no_deadline(postgres_url: str) -> None:
    limits: list[object] = []

    def watched(received: ConsumedMessage, connection: sa.Connection) -> None:
        for name in ("statement_timeout", "idle_in_transaction_session_timeout"):  # the server's
            limits.append(connection.execute(sa.text(f"SELECT current_setting('{name}')")).scalar_one())
        limits.append(isinstance(connection.connection.driver_connection, BoundedConnection))
        pay(received, connection)

    settings = load_settings(
        EXAMPLE,
        {
            "RECONCILER_LEDGER__URL": postgres_url,
            "RECONCILER_REDIS__URL": "redis://127.0.0.1:1/0",
            "RECONCILER_ROUNDS__STATEMENT_SECONDS": "60",
            "RECONCILER_SUBSCRIPTIONS": json.dumps(
                [{"topic": "ORDERS", "group": "billing", "inbox_url": postgres_url}]
            ),
        },
    )
    with inbox_engine(postgres_url) as engine, Connections(settings) as connections:
        ledger_metadata.create_all(engine)
        worker = build_replay_worker(connections, settings.subscriptions[0], watched)
        assert worker._handler.apply(message()) is InboxAnswer.NEW
        assert limits == ["0", "0", False]
        assert effect_count(engine) == 1
