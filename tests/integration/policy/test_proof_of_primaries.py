"""What real databases say of themselves, and to whom; the sign of life that sweeps write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pymysql
import pytest
import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.errors import ConfigurationError
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.evidence.witness_role import read_role
from reconciler.policy.commit_evidence import CommitSource
from reconciler.sql import schema, tables
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.identity import read_identity
from reconciler.sql.witness_database import DatabaseRole, WitnessDatabase
from reconciler.wiring.databases import database_fact
from reconciler.words import said
from tests.engines import begun, disposed
from tests.services import mariadb
from tests.services.postgres import PostgresServer
from tests.services.requirements import require
from tests.unit.policy.world import World
from tests.unit.producers.test_sweeping import MemoryInboxes
from tests.unit.producers.world import GROUP, TOPIC, MemoryAnnouncements, new_key

KEY = "0" * 31 + "1"


@contextmanager
def role_of(url: str) -> Iterator[WitnessDatabase]:
    """The outbox behind a URL as a witness."""
    with disposed(open_engine(url)) as engine:
        yield WitnessDatabase(engine, tables.outbox, is_outbox=True)


def login_of(url: str, *rights: str) -> str:
    """A login with nothing but these rights; its URL."""
    owner = sa.make_url(url)
    name = f"login_{owner.database}"[-30:]
    is_postgres = owner.get_backend_name() == "postgresql"
    who = name if is_postgres else f"'{name}'@'localhost'"
    with begun(url) as connection:
        made = f"CREATE ROLE {who} LOGIN" if is_postgres else f"CREATE USER {who} IDENTIFIED BY '{mariadb.PASSWORD}'"
        connection.exec_driver_sql(made)
        for right in rights:
            connection.exec_driver_sql(f"GRANT {right} TO {who}")
    return owner.set(username=name).render_as_string(hide_password=False)


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ]
)
def outbox_url(request: pytest.FixtureRequest) -> str:
    """A fresh outbox on a server."""
    url = str(request.getfixturevalue(f"{request.param}_server").create_database())
    schema.upgrade(url, "outbox")
    return url


def swept_ms(url: str) -> list[int | None]:
    """Of each row, in their order."""
    engine = open_engine(url)
    identity = tables.outbox_identity
    with reading(engine) as connection:
        found = list(connection.execute(sa.select(identity.c.swept_at_ms).order_by(identity.c.id)).scalars())
    engine.dispose()
    return found


def test_a_sweep_shows_life_while_transactions_that_have_recorded_are_open(outbox_url: str) -> None:
    """MariaDB keeps the row that record() reads locked, REPEATABLE READ, until the business commits."""
    engine = open_engine(outbox_url)
    identity = read_identity(engine)
    repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
    with repeatable.connect() as business, business.begin(), closing(SqlOutbox(outbox_url)) as outbox:
        business.execute(
            sa.insert(tables.outbox).from_select(
                ["unique_key", "topic", "producer_group", "state", "created_at_ms"],
                sa.select(*map(sa.literal, (KEY, TOPIC, GROUP, "NEW", 1))).where(
                    tables.outbox_identity.c.id == 1, tables.outbox_identity.c.identity == identity
                ),
            )
        )
        outbox.mark_swept()
        first = swept_ms(outbox_url)
    assert first[0] is None
    assert first[1] is not None
    engine.dispose()


def test_a_missing_right_stops_no_sweep_and_is_said_once(outbox_url: str) -> None:
    with begun(outbox_url) as connection:
        values = {
            "unique_key": new_key(),
            "topic": TOPIC,
            "producer_group": GROUP,
            "state": "NEW",
            "created_at_ms": 1,
        }
        connection.execute(sa.insert(tables.outbox).values(values))
    old_rights = ("SELECT, UPDATE, DELETE ON reconciler_outbox", "SELECT ON reconciler_outbox_identity")
    announcements = MemoryAnnouncements()
    with closing(SqlOutbox(login_of(outbox_url, *old_rights))) as outbox:
        sweeper = Sweeper(
            [OutboxSource(producer_group=GROUP, outbox=outbox)],
            announcer=Announcer(announcements, AnnouncementRoute(environment="test", queues=4)),
            subscriptions=[],
            inboxes=MemoryInboxes(),
        )
        first, second = sweeper.sweep_once(), sweeper.sweep_once()
    assert (first.announced, first.failed_sources) == (1, 0)
    assert len(announcements.keys) == 1
    problem, filters = first.problems
    assert "no sign of life" in problem
    assert "reconciler_outbox_identity" in problem
    assert "reconciler_outbox_filter" in filters
    assert second.problems == ()
    assert swept_ms(outbox_url) == [None, None]


def test_without_the_rights_and_the_column_of_this_release_a_primary_still_proves_absence(outbox_url: str) -> None:
    """An outbox that was not upgraded yet, read by a login that may read nothing but it."""
    with begun(outbox_url) as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_outbox_identity DROP COLUMN swept_at_ms")
    url = login_of(outbox_url, "SELECT ON reconciler_outbox")
    read = CommitSource(producer_group=GROUP, topics=frozenset({TOPIC}), url=url)
    with closing(SqlOutboxReader([read])) as reader:
        assert reader.look_up(TOPIC, {KEY: 2**62})[KEY].is_absent
    with role_of(url) as database:
        assert database.role() == DatabaseRole(is_primary=True)
        assert database.unread() == ()


def test_a_right_that_was_taken_away_is_missed_once_and_not_for_ever(outbox_url: str) -> None:
    url = login_of(outbox_url, "SELECT ON reconciler_outbox", "SELECT ON reconciler_outbox_identity")
    read = CommitSource(producer_group=GROUP, topics=frozenset({TOPIC}), url=url)
    with disposed(open_engine(outbox_url)) as engine, closing(SqlOutboxReader([read])) as reader:
        assert reader.look_up(TOPIC, {KEY: 1})[KEY].is_absent
        with writing(engine) as connection:
            name = str(sa.make_url(url).username)
            who = name if engine.dialect.name == "postgresql" else f"'{name}'@'localhost'"
            connection.exec_driver_sql(f"REVOKE SELECT ON reconciler_outbox_identity FROM {who}")
        reader.look_up(TOPIC, {KEY: 1})
        assert reader.look_up(TOPIC, {KEY: 1})[KEY].is_absent


@pytest.mark.set_up("logical replication into the outbox's or inbox's table")
@pytest.mark.sql("postgres")
def test_a_subscriber_of_logical_replication_is_no_primary() -> None:
    """It is in no recovery, every login may write to it, and its subscription may have been disabled for days."""
    with PostgresServer(options={"wal_level": "logical"}) as server:
        source, copy = server.create_database("source"), server.create_database("copy")
        for url in (source, copy):
            schema.upgrade(url, "outbox")
        engine = open_engine(source)
        with writing(engine) as connection:
            connection.exec_driver_sql("CREATE PUBLICATION p FOR ALL TABLES")
        with writing(engine) as connection:
            connection.exec_driver_sql("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        engine.dispose()
        name = sa.make_url(source).database
        with begun(copy) as connection:
            connection.exec_driver_sql(
                f"CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1 port={server.port} user=reconciler dbname={name}' "
                "PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)"
            )
            connection.exec_driver_sql("ALTER SUBSCRIPTION s DISABLE")
        with role_of(source) as database:
            assert database.role().is_primary is True
        with role_of(copy) as database:
            role = database.role()
            assert (role.is_primary, role.swept_at_ms) == (False, None)
        with closing(SqlOutbox(copy)) as outbox, pytest.raises(ConfigurationError, match="it is a replica"):
            outbox.mark_swept()


@pytest.mark.sql("mariadb")
def test_a_promoted_mariadb_is_a_primary_from_its_first_write_on_and_a_read_only_one_is_none() -> None:
    require(mariadb.missing())
    with (
        mariadb.MariaDBServer(options={"server-id": "1", "log-bin": "binary"}) as server,
        mariadb.MariaDBReplica(server) as replica,
    ):
        url = server.create_database()
        schema.upgrade(url, "outbox")
        replica.catch_up()
        copy = replica.url(str(sa.make_url(url).database))
        with closing(SqlOutbox(copy)) as outbox, role_of(copy) as database:
            with pytest.raises(ConfigurationError, match="it is a replica"):
                outbox.mark_swept()  # its own sign of life would prove nothing
            replica.promote()
            assert database.role().is_primary is False, "the server still tells the heartbeat"
            with begun(copy) as connection:
                connection.exec_driver_sql("INSERT INTO reconciler_outbox_identity VALUES (3, 'a write', NULL)")
            assert database.role().is_primary is True
            outbox.mark_swept()
            assert database.role().swept_at_ms is not None
        with pymysql.connect(unix_socket=str(server.unix_socket), user="root") as connection:
            connection.cursor().execute("SET GLOBAL read_only = 1")
        with role_of(url) as database:
            assert database.role().is_primary is False


def test_a_mariadb_that_replicates_under_a_name_is_no_primary_running_or_stopped() -> None:
    require(mariadb.missing())
    with (
        mariadb.MariaDBServer(options={"server-id": "1", "log-bin": "binary"}) as server,
        mariadb.MariaDBReplica(server, name="orders") as replica,
    ):
        url = server.create_database()
        schema.upgrade(url, "outbox")
        replica.catch_up()
        with role_of(replica.url(str(sa.make_url(url).database))) as database:
            assert database.role().is_primary is False
            replica.pause()
            assert database.role().is_primary is False
        with role_of(url) as database:
            assert database.role().is_primary is True


def test_a_write_by_hand_makes_no_primary_of_a_replica_with_a_domain_of_its_own() -> None:
    require(mariadb.missing())
    with (
        mariadb.MariaDBServer(options={"server-id": "1", "log-bin": "binary"}) as server,
        mariadb.MariaDBReplica(server, options={"gtid-domain-id": "7"}) as replica,
    ):
        url = server.create_database()
        schema.upgrade(url, "outbox")
        replica.catch_up()
        copy = replica.url(str(sa.make_url(url).database))
        with begun(copy) as connection:
            connection.exec_driver_sql("CREATE TABLE noted_by_hand (id INTEGER)")
        with role_of(copy) as database:
            assert database.role().is_primary is False
            replica.pause()
            assert database.role().is_primary is False


def without_a_binary_log(url: str, copy: mariadb.MariaDBReplica) -> tuple[str, str]:
    """Of a message that the copy lacks: what it says of it, and what a person is told of the copy."""
    engine = open_engine(copy.url(str(sa.make_url(url).database)))
    group = World().subscriptions[0]
    (answer,) = SqlInboxEvidence({group: [engine]}).look_up(group, [KEY])[KEY].answers
    role = read_role(engine, database=database_fact("inbox", "ORDERS/billing"), tree="inbox")
    engine.dispose()
    return str(answer.presence), "; ".join(map(said, (*role.found, *role.what_proves(60)))) if role.is_blind(60) else ""


@pytest.mark.set_up("a promoted MariaDB without a binary log")
@pytest.mark.sql("mariadb")
def test_a_replica_under_a_name_without_a_binary_log_is_no_primary_stopped_until_it_is_promoted_and_told_so() -> None:
    require(mariadb.missing())
    with (
        mariadb.MariaDBServer(options={"server-id": "1", "log-bin": "binary"}) as server,
        mariadb.MariaDBReplica(server, name="orders", options={"skip-log-bin": ""}) as replica,
    ):
        url = server.create_database()
        for tree in ("outbox", "inbox"):
            schema.upgrade(url, tree)
        replica.catch_up()
        assert without_a_binary_log(url, replica)[0] == "UNKNOWN"
        replica.pause()
        presence, told = without_a_binary_log(url, replica)
        assert presence == "UNKNOWN", "it was stopped, and lacks whatever has been committed since"
        assert "SET GLOBAL gtid_slave_pos = ''" in told
        replica.promote()
        presence, told = without_a_binary_log(url, replica)
        assert presence == "UNKNOWN", "it looks as before"
        assert "SET GLOBAL gtid_slave_pos = ''" in told
        replica._execute("SET GLOBAL gtid_slave_pos = ''")
        assert without_a_binary_log(url, replica) == ("ABSENT", "")
        with closing(SqlOutbox(replica.url(str(sa.make_url(url).database)))) as outbox:
            outbox.mark_swept()
