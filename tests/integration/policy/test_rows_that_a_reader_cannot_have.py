"""Outboxes whose reader is hidden from rows, led to another schema or database, or to a copy: real databases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from reconciler.contract.answers import ROWS_HIDDEN
from reconciler.contract.properties import OUTBOX_MARK
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.evidence.witness_role import SHOW_EVERY_ROW, read_role
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.judging.suspect import undecided_by
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.sql import schema, tables
from reconciler.sql.engines import open_engine, writing
from reconciler.sql.identity import read_identity
from reconciler.wiring.databases import database_fact
from reconciler.words import said
from tests.engines import begun, disposed
from tests.integration.policy.test_proof_of_primaries import login_of
from tests.services import mariadb, postgres
from tests.services.requirements import require
from tests.simulation.outbox_table import TableRow
from tests.unit.policy.world import PRODUCER_GROUP, TOPIC, World, key

NOT_PROVED = "not proved to be a primary"

RIGHTS = ("SELECT ON reconciler_outbox", "SELECT ON reconciler_outbox_identity", "SELECT ON reconciler_inbox")
#: What a policy may say to a login that the world is not to be hidden from.
HIDING = (
    "CREATE POLICY own ON {table} FOR SELECT TO {login} USING ({column} = 'another')",
    "CREATE POLICY own ON {table} FOR SELECT USING (length({column}) > 99)",
    "CREATE POLICY every ON {table} FOR SELECT TO reconciler USING (true)",
    "CREATE POLICY every ON {table} FOR UPDATE TO {login} USING (true)",
    "CREATE POLICY every ON {table} USING (true); CREATE POLICY less ON {table} AS RESTRICTIVE USING ({column} = '')",
)
SHOWING = (
    "CREATE POLICY every ON {table} FOR SELECT TO {login} USING (true)",
    "CREATE POLICY every ON {table} USING (true); CREATE POLICY own ON {table} USING ({column} = 'another')",
    "ALTER ROLE {login} BYPASSRLS",
)


@contextmanager
def reader_of(*urls: str) -> Iterator[SqlOutboxReader]:
    """The outboxes of one producer group."""
    topics = frozenset({TOPIC})
    reads = [CommitSource(producer_group=PRODUCER_GROUP, topics=topics, url=url) for url in urls]
    with closing(SqlOutboxReader(reads)) as reader:
        yield reader


def execute(url: str, *statements: str) -> None:
    """As the owner."""
    with disposed(open_engine(url)) as engine:
        for statement in statements:
            with writing(engine) as connection:
                connection.exec_driver_sql(statement)


def commit(url: str, row: TableRow) -> None:
    """The service's local transaction."""
    with begun(url) as connection:
        connection.execute(sa.insert(tables.outbox).values(**asdict(row)))


def world_now(**ports: Any) -> World:
    """A world at the real time, with real databases in the place of some."""
    world = World()
    world.clock.advance(time.time() - world.clock.now_ms() / 1000)
    world.__dict__.update(ports)
    return world


def verdict_of(world: World, unique_key: str) -> tuple[Verdict, CandidateState]:
    """What the ledger says of the key."""
    row = world.candidate(unique_key)
    assert row is not None
    return row.verdict, row.state


# ---- row security


def with_policy(url: str, policy: str, *, table: str = "reconciler_outbox", column: str = "producer_group") -> str:
    """A reader's URL, under row security with this policy."""
    for tree in ("outbox", "inbox"):
        schema.upgrade(url, tree)
    reader = login_of(url, *RIGHTS)
    login = sa.make_url(reader).username
    execute(
        url,
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        policy.format(table=table, login=login, column=column),
    )
    return reader


@pytest.mark.sql("postgres")
@pytest.mark.parametrize("policy", HIDING)
def test_a_commit_that_row_security_hides_is_no_rejection(postgres_url: str, policy: str) -> None:
    url = with_policy(postgres_url, policy)
    with reader_of(url) as reader:
        world = world_now(outbox=reader)
        process = world.process()
        half = world.broker.send_half(key(1))
        commit(postgres_url, World().commit_locally(key(1), half, created_at_ms=world.clock.now_ms()))
        world.announce(key(1))
        world.rounds(process, 12)
        assert verdict_of(world, key(1)) == (Verdict.UNKNOWN, CandidateState.OPEN)
        row = world.candidate(key(1))
        assert row is not None
        assert said(ROWS_HIDDEN()) in str(row.evidence["reason"])
        assert reader.look_up(TOPIC, {key(1): WHENEVER_COMMITTED_MS})[key(1)].is_unknown, "nor for a person"

        execute(postgres_url, f"ALTER ROLE {sa.make_url(url).username} BYPASSRLS")
        world.rounds(process, 24)
        row = world.candidate(key(1))
        assert row is not None
        assert (row.loss_verdict, row.verdict) == (Verdict.LOST_CONFIRM, Verdict.CONSUMED)


@pytest.mark.sql("postgres")
@pytest.mark.parametrize("policy", SHOWING)
def test_row_security_that_shows_every_row_proves_absence_as_it_did(postgres_url: str, policy: str) -> None:
    with reader_of(with_policy(postgres_url, policy)) as reader:
        assert reader.look_up(TOPIC, {key(1): 1})[key(1)].is_absent


@pytest.mark.sql("postgres")
def test_an_inbox_under_row_security_goes_on_being_repaired_by_and_is_told(postgres_url: str) -> None:
    """One that shows each group its own rows is no rare thing, and hides nothing that is asked for."""
    policy = "CREATE POLICY own ON {table} FOR SELECT TO {login} USING ({column} = 'billing')"
    url = with_policy(postgres_url, policy, table="reconciler_inbox", column="consumer_group")
    engine = open_engine(url, read_only=True)
    found = SqlInboxEvidence({World().subscriptions[0]: [engine]}).look_up(World().subscriptions[0], [key(1)])
    assert found[key(1)].is_absent
    inbox, outbox = (
        read_role(engine, database=database_fact(tree, "orders"), tree=tree) for tree in ("inbox", "outbox")
    )
    assert (ROWS_HIDDEN() in inbox.found, inbox.is_doubted, inbox.is_blind(300)) == (True, True, False)
    assert ROWS_HIDDEN() not in outbox.found
    engine.dispose()


@pytest.mark.sql("postgres")
def test_an_outbox_under_row_security_blinds_us_and_is_told_with_what_mends_it(postgres_url: str) -> None:
    engine = open_engine(with_policy(postgres_url, HIDING[0]), read_only=True)
    outbox = read_role(engine, database=database_fact("outbox", "orders"), tree="outbox")
    assert outbox.is_blind(300)
    assert outbox.what_proves(300) == (SHOW_EVERY_ROW(tree="outbox"),)
    engine.dispose()


# ---- copies


@pytest.mark.sql("postgres")
def test_a_former_primary_without_a_sweeper_rejects_nothing() -> None:
    """It calls itself a primary, and has the sign of life of the time when it was one."""
    require(postgres.missing())
    with postgres.PostgresServer(options={"synchronous_commit": "on"}) as primary:
        url = primary.create_database()
        schema.upgrade(url, "outbox")
        with closing(SqlOutbox(url)) as outbox:
            outbox.mark_swept()
        with postgres.PostgresClone(primary) as clone, reader_of(clone.url(str(sa.make_url(url).database))) as reader:
            world = world_now(outbox=reader)
            process = world.process()
            commit(url, World().commit_locally(key(1), world.broker.send_half(key(1))))
            world.announce(key(1))
            world.rounds(process, 12)
            row = world.candidate(key(1))
            assert row is not None
            assert (row.verdict, row.state) == (Verdict.UNKNOWN, CandidateState.OPEN)
            assert f"{NOT_PROVED}: it may be a former one" in str(row.evidence["reason"])


def lose_beside(world: World, outbox_url: str, *, is_marked: bool = True) -> None:
    """A lost message whose row is in the service's own outbox, which the world does not read; half and all."""
    with disposed(open_engine(outbox_url)) as engine:
        identity = read_identity(engine)
    half = world.broker.send_half(key(1))
    if is_marked:
        world.broker.halves[-1] = replace(half, properties={**half.properties, OUTBOX_MARK: identity})
    commit(outbox_url, World().commit_locally(key(1), world.broker.halves[-1], created_at_ms=world.clock.now_ms()))
    world.announce(key(1))


def assert_contradiction(world: World, shown: str) -> None:
    """After some minutes of rounds: no rejection, and the database is named."""
    world.rounds(world.process(), 36)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert undecided_by(row.evidence)[0] is Undecided.CONTRADICTION
    assert shown in str(row.evidence["reason"])


def assert_repaired(world: World) -> None:
    """Once the world reads the right outbox."""
    world.rounds(world.process(), 36)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.loss_verdict, row.verdict) == (Verdict.LOST_CONFIRM, Verdict.CONSUMED)


@pytest.mark.sql("postgres")
def test_a_clone_with_a_sweeper_rejects_no_key_whose_half_names_its_outbox() -> None:
    """`sweep` and `run` read the same URL: the sign of life in the clone is as fresh as in its original."""
    require(postgres.missing())
    with postgres.PostgresServer(options={"synchronous_commit": "on"}) as primary:
        url = primary.create_database()
        schema.upgrade(url, "outbox")
        with postgres.PostgresClone(primary) as server:
            clone = server.url(str(sa.make_url(url).database))
            with reader_of(clone) as reader, closing(SqlOutbox(clone)) as sweeper, reader_of(url) as right:
                world = world_now(outbox=reader)
                world.clock.advance(-900)
                lose_beside(world, url)
                sweeper.mark_swept()
                assert_contradiction(world, str(sa.make_url(clone).database))
                world.outbox = right  # type: ignore[assignment]
                assert_repaired(world)


@pytest.mark.sql("postgres")
def test_an_outbox_in_another_schema_of_the_search_path_rejects_no_key_whose_half_names_the_right_one(
    postgres_url: str,
) -> None:
    schema.upgrade(postgres_url, "outbox")
    login = login_of(postgres_url)
    name = sa.make_url(login).username
    made = "reconciler_outbox", "reconciler_outbox_identity"
    execute(
        postgres_url,
        f"CREATE SCHEMA old; GRANT USAGE ON SCHEMA old TO {name}; ALTER ROLE {name} SET search_path = old, public",
        *(f"CREATE TABLE old.{table} (LIKE public.{table} INCLUDING ALL)" for table in made),
        f"GRANT SELECT ON {', '.join(made)} TO {name}; GRANT SELECT ON ALL TABLES IN SCHEMA old TO {name}",
        "INSERT INTO old.reconciler_outbox_identity (id, identity) VALUES (1, 'of an old trial')",
    )
    with reader_of(login) as reader, reader_of(postgres_url) as right:
        world = world_now(outbox=reader)
        lose_beside(world, postgres_url)
        assert_contradiction(world, "no outbox_url of a section with this topic leads to that one")
        world.outbox = right  # type: ignore[assignment]
        assert_repaired(world)


@pytest.mark.sql("postgres")
def test_an_identity_of_another_schema_than_the_rows_names_nothing(postgres_url: str) -> None:
    schema.upgrade(postgres_url, "outbox")
    login = login_of(postgres_url, "SELECT ON reconciler_outbox", "SELECT ON reconciler_outbox_identity")
    name = sa.make_url(login).username
    with reader_of(login) as reader:
        (answer,) = reader.look_up(TOPIC, {key(1): 1})[key(1)].answers
        assert answer.identity is not None
    execute(
        postgres_url,
        f"CREATE SCHEMA old; GRANT USAGE ON SCHEMA old TO {name}; ALTER ROLE {name} SET search_path = old, public",
        "CREATE TABLE old.reconciler_outbox (LIKE public.reconciler_outbox INCLUDING ALL)",
        f"GRANT SELECT ON old.reconciler_outbox TO {name}",
    )
    with reader_of(login) as reader:
        (answer,) = reader.look_up(TOPIC, {key(1): 1})[key(1)].answers
        assert answer.identity is None


@pytest.mark.sql("mariadb")
def test_another_database_of_a_mariadb_rejects_no_key_whose_half_names_the_right_one(
    mariadb_server: mariadb.MariaDBServer,
) -> None:
    url, another = mariadb_server.create_database(), mariadb_server.create_database()
    for each in (url, another):
        schema.upgrade(each, "outbox")
    with reader_of(another) as reader, reader_of(url) as right:
        world = world_now(outbox=reader)
        lose_beside(world, url)
        assert_contradiction(world, str(sa.make_url(another).database))
        world.outbox = right  # type: ignore[assignment]
        assert_repaired(world)


@pytest.mark.sql("postgres")
@pytest.mark.parametrize("is_marked", [True, False])
def test_an_outbox_of_another_environment_is_no_calm_and_rejects_nothing_for_good(
    postgres_server: postgres.PostgresServer, is_marked: bool
) -> None:
    """It has rows of the same producer group and topic. Clients for other languages may write no mark."""
    url, staging = postgres_server.create_database(), postgres_server.create_database()
    for each in (url, staging):
        schema.upgrade(each, "outbox")
    commit(staging, World().commit_locally(key(2), None))
    with reader_of(staging) as reader, reader_of(url) as right:
        world = world_now(outbox=reader)
        lose_beside(world, url, is_marked=is_marked)
        process = world.process()
        world.rounds(process, 6)
        assert verdict_of(world, key(1)) == (Verdict.REJECTED, CandidateState.SETTLED)
        unreviewed = world.ledger.candidates.unreviewed_rows(world.subscriptions[0], most=9)
        assert unreviewed.count == 1, "`status` does not count it as accounted for"
        assert_contradiction(world, str(sa.make_url(staging).database))
        world.outbox = right  # type: ignore[assignment]
        assert_repaired(world)


@pytest.mark.sql("postgres")
def test_a_list_of_outboxes_that_lacks_the_one_of_the_half_rejects_nothing(
    postgres_server: postgres.PostgresServer,
) -> None:
    """Two databases of one group are read, and a third one has the row."""
    urls = [postgres_server.create_database() for _ in range(3)]
    for url in urls:
        schema.upgrade(url, "outbox")
    with reader_of(*urls[:2]) as reader, reader_of(*urls) as right:
        world = world_now(outbox=reader)
        lose_beside(world, urls[2])
        assert_contradiction(world, str(sa.make_url(urls[1]).database))
        world.outbox = right  # type: ignore[assignment]
        assert_repaired(world)
