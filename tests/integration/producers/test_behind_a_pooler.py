"""A pooler gives every transaction another session: what one client left there is another client's accident."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from producers.outbox import SqlOutbox
from reconciler.audit.collect import database as audited
from reconciler.audit.collect.sources import Source
from reconciler.errors import DatabaseAway
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.single_statements import SingleStatements
from reconciler.sql.tables import outbox
from tests.services.pgbouncer import SESSIONS, PgBouncer
from tests.services.postgres import PostgresServer
from tests.unit.producers.world import GROUP, World, checked, new_key

pytestmark = pytest.mark.sql("pgbouncer")

CLIENTS = 16
ROWS = 2_000
KEYS_A_STATEMENT = 5
#: What a transaction finds, in this order.
SETTINGS = "SELECT " + ", ".join(
    f"current_setting('{name}')" for name in ("transaction_isolation", "lock_timeout", "transaction_read_only")
)


@pytest.fixture
def url(pgbouncer_server: PgBouncer) -> str:
    """A fresh database behind the pooler."""
    return pgbouncer_server.create_database()


@pytest.fixture
def world(url: str) -> Iterator[World]:
    made = World(url)
    yield made
    made.close()


def states(world: World, keys: list[str]) -> Counter[str]:
    with reading(world.engine) as connection:
        return Counter(connection.execute(sa.select(outbox.c.state).where(outbox.c.unique_key.in_(keys))).scalars())


def insert_rows(world: World, keys: list[str], state: str) -> None:
    rows = [
        {"unique_key": key, "topic": "ORDERS", "producer_group": GROUP, "state": state, "created_at_ms": 1}
        for key in keys
    ]
    with writing(world.engine) as connection:
        connection.execute(sa.insert(outbox), rows)


def test_no_client_executes_the_statement_of_another(world: World) -> None:
    """Rows that were only marked announced became SETTLED: their statement had the name of another client's."""
    announced, settled = ([new_key() for _ in range(ROWS)] for _ in range(2))
    insert_rows(world, announced, "NEW")
    insert_rows(world, settled, "ANNOUNCED")

    def work(number: int, client: SqlOutbox) -> None:
        """In an order of its own: statements are prepared under numbers."""
        mine = slice(number, None, CLIENTS)
        acts = [(client.mark_announced, announced[mine]), (client.mark_settled, settled[mine])]
        for mark, keys in acts if number % 2 else acts[::-1]:
            for first in range(0, len(keys), KEYS_A_STATEMENT):
                some = keys[first : first + KEYS_A_STATEMENT]
                assert mark(some) == len(some)
                fact = client.find(some[0])
                assert fact is not None
                assert fact.unique_key == some[0]
        assert client.insert_tombstone(checked(new_key()))
        assert client.unannounced(GROUP, older_than_seconds=0, limit=1).now_ms > 0

    with ExitStack() as stack, ThreadPoolExecutor(CLIENTS) as pool:
        clients = [stack.enter_context(closing(SqlOutbox(world.url, pool_size=1))) for _ in range(CLIENTS)]
        list(pool.map(work, range(CLIENTS), clients))
    assert states(world, announced) == {"ANNOUNCED": ROWS}
    assert states(world, settled) == {"SETTLED": ROWS}


@pytest.fixture
def strict_url(postgres_server: PostgresServer, pgbouncer_server: PgBouncer) -> str:
    """A database whose own settings are not ours, behind the pooler."""
    direct = make_url(postgres_server.create_database())
    with psycopg.connect(
        host=direct.host, port=direct.port, user=direct.username, dbname=direct.database, autocommit=True
    ) as connection:
        connection.execute(
            f"ALTER DATABASE {direct.database} SET default_transaction_isolation = serializable".encode()
        )
        connection.execute(f"ALTER DATABASE {direct.database} SET lock_timeout = 77".encode())
    return pgbouncer_server.through(direct.render_as_string(hide_password=False))


def test_every_transaction_has_its_own_settings_and_leaves_none(strict_url: str) -> None:
    """Isolation and lock time-out of the tombstone; an engine that only reads, and cannot write."""
    writer = open_engine(strict_url, lock_timeout_seconds=2)
    reader = open_engine(strict_url, lock_timeout_seconds=3, read_only=True)
    source = Source(kind="database", address=strict_url, option="--ledger")
    with (
        closing(SingleStatements(strict_url, lock_timeout_seconds=4)) as single,
        psycopg.connect(
            make_url(strict_url).set(drivername="postgresql").render_as_string(),
            autocommit=True,
            prepare_threshold=None,
        ) as stranger,
    ):
        for _ in range(2 * SESSIONS):
            with writing(writer) as connection:
                assert connection.exec_driver_sql(SETTINGS).one() == ("read committed", "2s", "off")
            with writing(reader) as connection:
                assert connection.exec_driver_sql(SETTINGS).one() == ("read committed", "3s", "on")
            with audited.reading(source) as connection:
                assert connection.exec_driver_sql(SETTINGS).one() == ("repeatable read", "77ms", "on")
            assert single.select_one(SETTINGS, ()) == ("read committed", "4s", "off")
            assert stranger.execute(SETTINGS.encode()).fetchone() == ("serializable", "77ms", "off")
    writer.dispose()
    reader.dispose()


def test_a_pooler_that_shares_sessions_statement_by_statement_is_named(postgres_server: PostgresServer) -> None:
    """It has no transactions: outbox row and business could not be one."""
    with PgBouncer(postgres_server, options={"pool_mode": "statement"}) as pooler:
        engine = open_engine(pooler.create_database())
        with pytest.raises(DatabaseAway, match="statement pooling mode"), writing(engine):
            pass
        engine.dispose()
