"""A pooler gives every transaction another session: what one client left there is another client's accident."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.audit.collect import database as audited
from reconciler.audit.collect.sources import Source
from reconciler.commands.doctor.checks import examine
from reconciler.contract.subscription import Subscription
from reconciler.errors import DatabaseAway
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.policy.sweeping import SweepRules, SweptSubscription
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.single_statements import SingleStatements
from reconciler.sql.tables import inbox, inbox_metadata, outbox
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.services.pgbouncer import SESSIONS, PgBouncer
from tests.services.postgres import PostgresServer
from tests.unit.producers.world import GROUP, TOPIC, MemoryAnnouncements, World, checked, new_key

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


def insert_rows(world: World, keys: list[str], state: str, **values: object) -> None:
    row = {"topic": TOPIC, "producer_group": GROUP, "state": state, "created_at_ms": 1, **values}
    with writing(world.engine) as connection:
        connection.execute(sa.insert(outbox), [row | {"unique_key": key} for key in keys])


@pytest.mark.set_up("pgbouncer, transaction mode, its default settings")
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


def test_sweepers_announce_and_settle_what_they_should(world: World, pgbouncer_server: PgBouncer) -> None:
    billing = Subscription(environment="test", topic=TOPIC, group="billing")
    inbox_url = pgbouncer_server.create_database()
    owner, reader = open_engine(inbox_url), open_engine(inbox_url, read_only=True)
    inbox_metadata.create_all(owner)
    new, applied, open_ = ([new_key() for _ in range(200)] for _ in range(3))
    insert_rows(world, new, "NEW")
    insert_rows(world, applied + open_, "ANNOUNCED", announced_at_ms=1)
    with writing(owner) as connection:
        row = {"consumer_group": "billing", "topic": TOPIC, "source": "consumer", "applied_at_ms": 1}
        connection.execute(sa.insert(inbox), [row | {"unique_key": key} for key in applied])

    def sweep(_: int) -> int:
        sweeper = Sweeper(
            [OutboxSource(producer_group=GROUP, outbox=world.outbox())],
            announcer=Announcer(MemoryAnnouncements(), AnnouncementRoute(environment="test", queues=4)),
            subscriptions=[SweptSubscription(subscription=billing)],
            inboxes=SqlInboxEvidence({billing: [reader]}),
            rules=SweepRules(page_rows=20),
        )
        return sweeper.sweep_once().failed_sources

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(sweep, range(4))) == [0] * 4
    assert states(world, new) == {"ANNOUNCED": 200}
    assert states(world, applied) == {"SETTLED": 200}
    assert states(world, open_) == {"ANNOUNCED": 200}
    owner.dispose()
    reader.dispose()


def test_doctor_finds_the_databases_and_does_not_wait(pgbouncer_server: PgBouncer) -> None:
    """The pooler refused our start-up parameters, and a database that refuses a login counts as away."""
    urls = {tree: pgbouncer_server.create_database() for tree in schema.TREES}
    for tree, url in urls.items():
        schema.upgrade(url, tree)
    away = "127.0.0.1:1"
    settings = Settings.model_validate(
        {
            "environment": "test",
            "rocketmq": {"name_servers": away},
            "redis": {"url": f"redis://{away}/0"},
            "ledger": {"url": urls["ledger"]},
            "producers": [{"group": GROUP, "topics": [TOPIC], "outbox_url": urls["outbox"]}],
            "subscriptions": [{"topic": TOPIC, "group": "billing", "inbox_url": urls["inbox"]}],
        }
    )
    with Connections(settings) as connections:
        found = {said(finding.check): finding.level for finding in examine(connections)}
    assert [found[name] for name in ("ledger", f"outbox of {GROUP}", f"inbox of {TOPIC}/billing")] == ["ok"] * 3
    assert "ledger rights" not in found


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


@pytest.mark.set_up("a pooler, statement mode")
def test_a_pooler_that_shares_sessions_statement_by_statement_is_named(postgres_server: PostgresServer) -> None:
    """It has no transactions: outbox row and business could not be one."""
    with PgBouncer(postgres_server, options={"pool_mode": "statement"}) as pooler:
        engine = open_engine(pooler.create_database())
        with pytest.raises(DatabaseAway, match="statement pooling mode"), writing(engine):
            pass
        engine.dispose()


@pytest.mark.sql("postgres")
def test_sweepers_that_find_rows_in_two_orders_wait_for_each_other(postgres_url: str) -> None:
    """The plans of two sessions differ while a table grows: one goes by the index, one by the heap."""
    world = World(postgres_url)
    keys = sorted(new_key() for _ in range(500))
    insert_rows(world, keys[::-1], "NEW")
    clients = []
    for way in ("seqscan", "indexscan"):
        with world.engine.begin() as connection:
            for name in ("seqscan", "indexscan", "bitmapscan"):
                setting = "off" if name in (way, "bitmapscan") else "on"
                connection.exec_driver_sql(f"ALTER ROLE CURRENT_USER SET enable_{name} = {setting}")
        clients.append(world.outbox())
        clients[-1].mark_announced(keys[:1])  # its connection has these settings
    with world.engine.begin() as connection:
        connection.exec_driver_sql("ALTER ROLE CURRENT_USER RESET ALL")
    together = threading.Barrier(len(clients))

    def mark(client: SqlOutbox) -> list[int]:
        marked = []
        for _ in range(10):
            together.wait(timeout=60)
            marked.append(client.mark_announced(keys))
        return marked

    with ThreadPoolExecutor(len(clients)) as pool:
        assert list(pool.map(mark, clients)) == [[len(keys)] * 10] * 2
    world.close()
