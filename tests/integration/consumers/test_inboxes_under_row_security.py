"""Row security on an inbox: what it refuses or hides says nothing about the message, which is not given up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.errors import InboxNotReached
from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import TransactionalHandler
from checkback_consumers.replay_worker import ATTEMPTS_MAX, ReplayWorker
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox, ledger_metadata
from tests.engines import with_tables
from tests.integration.consumers.faces import Decorator
from tests.unit.consumers.messages import business, effect_count, message, new_key, sqlite_url
from tests.unit.consumers.test_replay_worker import insert_row, make_due, pay, row_of

pytestmark = pytest.mark.sql("postgres")

LOGIN = "service_under_policies"
#: An older row is not seen; a new one may be written, and is seen.
HIDES = (
    "CREATE POLICY sees ON reconciler_inbox FOR SELECT USING (applied_at_ms > 1000)",
    "CREATE POLICY writes ON reconciler_inbox FOR INSERT WITH CHECK (true)",
)
REFUSES = (
    "CREATE POLICY sees ON reconciler_inbox FOR SELECT USING (true)",
    "CREATE POLICY writes ON reconciler_inbox FOR INSERT WITH CHECK (topic = 'REFUNDS')",
)


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """The only one of these databases that has row security. Every case of this file holds on both faces."""
    return postgres_url


@pytest.fixture
def owner(postgres_url: str) -> Iterator[sa.Engine]:
    schema.upgrade(postgres_url, "inbox")
    engine = open_engine(postgres_url)
    business.create_all(engine)
    yield engine
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {LOGIN}")
        connection.exec_driver_sql(f"DROP ROLE {LOGIN}")
    engine.dispose()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[sa.Engine]:
    with with_tables(sqlite_url(tmp_path), ledger_metadata) as engine:
        yield engine


def service(owner: sa.Engine, policies: tuple[str, ...]) -> sa.Engine:
    """With a login that the policies are in force for."""
    with owner.begin() as connection:
        for statement in (
            "ALTER TABLE reconciler_inbox ENABLE ROW LEVEL SECURITY",
            *policies,
            f"CREATE ROLE {LOGIN} LOGIN PASSWORD 'x'",
            f"GRANT SELECT, INSERT ON reconciler_inbox TO {LOGIN}",
            f"GRANT SELECT, INSERT ON effects TO {LOGIN}",
        ):
            connection.exec_driver_sql(statement)
    return open_engine(owner.url.set(username=LOGIN, password="x").render_as_string(hide_password=False))


def show_all(owner: sa.Engine) -> None:
    with owner.begin() as connection:
        connection.exec_driver_sql(f"ALTER ROLE {LOGIN} BYPASSRLS")


def unreached_until_it_sees_all(
    handler: TransactionalHandler, owner: sa.Engine, ledger: sa.Engine, key: str
) -> ReplayWorker:
    """Hands the key over more often than it may fail, which gives nothing up; then the login sees every row."""
    insert_row(ledger, key)
    worker = ReplayWorker(handler, environment="test", topics="ORDERS", queue=HandOverRows(ledger))
    for _ in range(ATTEMPTS_MAX + 1):
        make_due(ledger)
        assert worker.run_once().unreached == 1
    assert row_of(ledger, key).state == "OPEN"
    show_all(owner)
    make_due(ledger)
    return worker


def test_a_row_that_is_hidden_gives_no_hand_over_up(owner: sa.Engine, ledger: sa.Engine, handling: Decorator) -> None:
    engine, key = service(owner, HIDES), new_key()
    with owner.begin() as connection:
        row = {"consumer_group": "billing", "unique_key": key, "topic": "ORDERS", "source": "consumer"}
        connection.execute(sa.insert(inbox).values(applied_at_ms=1, **row))
    handler = handling(engine, group="billing")(pay)
    with pytest.raises(InboxNotReached, match=r"hidden by row security: .*BYPASSRLS"):
        handler.apply(message(key))
    worker = unreached_until_it_sees_all(handler, owner, ledger, key)
    assert worker.run_once().already_applied == 1
    assert (row_of(ledger, key).state, effect_count(owner)) == ("DONE", 0)
    engine.dispose()


def test_a_row_that_a_policy_refuses_gives_no_hand_over_up(
    owner: sa.Engine, ledger: sa.Engine, handling: Decorator
) -> None:
    engine, key = service(owner, REFUSES), new_key()
    handler = handling(engine, group="billing")(pay)
    worker = unreached_until_it_sees_all(handler, owner, ledger, key)
    assert worker.run_once().applied == 1
    assert (row_of(ledger, key).state, effect_count(owner)) == ("DONE", 1)
    engine.dispose()
