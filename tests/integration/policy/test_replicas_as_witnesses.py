"""Outboxes and inboxes that are read from a replica: a paused PostgreSQL standby, a stopped MariaDB replica.

What has not come to a replica is not absent. Brokers, Redis and ledger are in memory; the databases are real.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from reconciler.clock import ManualClock
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow
from reconciler.policy.round import ReconcileRound
from reconciler.sql import schema, tables
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.witness_database import WitnessDatabase
from reconciler.words import said
from tests.services import mariadb, postgres
from tests.services.requirements import require
from tests.simulation.outbox_table import TableRow
from tests.unit.policy.world import PRODUCER_GROUP, TOPIC, World, key

NOT_PROVED = "not proved to be a primary"

#: How long before the real time the world's history begins.
BEFORE_SECONDS = 300


class Server(Protocol):
    """A primary."""

    def create_database(self, prefix: str = "test") -> str: ...

    def url(self, database: str = ...) -> str: ...


class Replica(Protocol):
    """Its replica."""

    def url(self, database: str = ...) -> str: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def catch_up(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary with its replica."""

    primary: Server
    replica: Replica


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ],
)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both, started."""
    if request.param == "postgres":
        require(postgres.missing())
        with (
            postgres.PostgresServer(options={"synchronous_commit": "on"}) as first,
            postgres.PostgresStandby(first) as standby,
        ):
            yield Pair(first, standby)
        return
    require(mariadb.missing())
    with (
        mariadb.MariaDBServer(options={"server-id": "1", "log-bin": "binary"}) as server,
        mariadb.MariaDBReplica(server) as follower,
    ):
        yield Pair(server, follower)


class Databases:
    """One database of outbox and inbox on both servers, and a world that reads the replica's."""

    def __init__(self, pair: Pair) -> None:
        self.replica = pair.replica
        self.url = pair.primary.create_database()
        self.replica_url = pair.replica.url(str(sa.make_url(self.url).database))
        for tree in ("outbox", "inbox"):
            schema.upgrade(self.url, tree)
        self.replica.catch_up()
        self.primary = open_engine(self.url)
        self.engine = open_engine(self.replica_url, read_only=True)
        self.reader = SqlOutboxReader(
            [CommitSource(producer_group=PRODUCER_GROUP, topics=frozenset({TOPIC}), url=self.replica_url)]
        )

    def close(self) -> None:
        self.replica.resume()
        self.reader.close()
        for engine in (self.primary, self.engine):
            engine.dispose()

    def commit(self, row: TableRow | InboxRow) -> None:
        """On the primary."""
        values = asdict(row)
        table = tables.outbox if isinstance(row, TableRow) else tables.inbox
        if isinstance(row, InboxRow):
            values = {"consumer_group": values.pop("group"), **values}
            del values["damage"]
        with writing(self.primary) as connection:
            connection.execute(sa.insert(table).values(**values))

    def sweep(self, *, ahead_ms: int = 0) -> int:
        """The sign of life, by a clock that is so far ahead; returns a right time after it."""
        with closing(SqlOutbox(self.url)) as outbox:
            outbox.mark_swept()
        life = tables.outbox_identity
        with writing(self.primary) as connection:
            connection.execute(sa.update(life).values(swept_at_ms=life.c.swept_at_ms + ahead_ms))
        with reading(self.primary) as connection:
            return database_now_ms(connection)


@pytest.fixture
def databases(pair: Pair) -> Iterator[Databases]:
    """Fresh ones, replicating."""
    opened = Databases(pair)
    yield opened
    opened.close()


def world_of(**ports: Any) -> World:
    """A world that begins before the real time, with real databases in the place of some."""
    world = World()
    world.clock.advance(time.time() - BEFORE_SECONDS - world.clock.now_ms() / 1000)
    world.__dict__.update(ports)
    return world


def verdict_of(world: World, unique_key: str) -> tuple[Verdict, CandidateState, str]:
    """What the ledger says of the key."""
    row = world.candidate(unique_key)
    assert row is not None
    return row.verdict, row.state, str(row.evidence.get("reason"))


def judged(world: World, process: ReconcileRound, unique_key: str) -> tuple[Verdict, CandidateState, str]:
    """The verdict after a minute of rounds."""
    world.rounds(process, 12)
    return verdict_of(world, unique_key)


@pytest.mark.set_up("that replica lags, is paused or has stopped")
def test_a_commit_that_a_paused_replica_lacks_is_no_rejection(databases: Databases) -> None:
    world = world_of(outbox=databases.reader)
    process = world.process()
    half = world.broker.send_half(key(1))
    databases.sweep()
    databases.replica.catch_up()
    databases.replica.pause()
    fake = World()
    databases.commit(fake.commit_locally(key(1), half, created_at_ms=world.clock.now_ms()))
    databases.sweep()
    world.clock.advance(BEFORE_SECONDS + 60)  # announced after the sign of life that has come
    world.announce(key(1))
    verdict, state, reason = judged(world, process, key(1))
    assert (verdict, state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert NOT_PROVED in reason
    databases.replica.resume()
    databases.replica.catch_up()
    judged(world, process, key(1))
    row = world.candidate(key(1))
    assert row is not None
    assert row.loss_verdict is Verdict.LOST_CONFIRM
    assert row.verdict is Verdict.CONSUMED, "it was repaired as soon as the replica had the commit"


@pytest.mark.set_up("outbox_url of run leads to a replica")
def test_a_fresh_sign_of_life_lets_a_replica_prove_absence_and_one_that_has_stopped_proves_nothing(
    databases: Databases,
) -> None:
    world = world_of(outbox=databases.reader)
    process = world.process()
    world.announce(key(1))
    world.rounds(process, 1)
    databases.sweep()
    databases.replica.catch_up()
    verdict, state, _ = judged(world, process, key(1))
    assert (verdict, state) == (Verdict.REJECTED, CandidateState.SETTLED)
    databases.replica.pause()
    world.clock.advance(BEFORE_SECONDS)
    world.announce(key(2))
    databases.sweep()
    verdict, state, reason = judged(world, process, key(2))
    assert (verdict, state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert NOT_PROVED in reason


def test_the_sign_of_life_must_be_later_than_the_time_of_the_key(databases: Databases) -> None:
    before_ms = databases.sweep() - 60_000
    databases.replica.catch_up()
    with reading(databases.engine) as connection:
        after_ms = database_now_ms(connection) + 60_000
    found = databases.reader.look_up(TOPIC, {key(1): before_ms, key(2): after_ms})
    assert found[key(1)].is_absent
    assert found[key(2)].is_unknown


HOUR_MS = 3_600_000


def reader_of(url: str, clock: ManualClock) -> SqlOutboxReader:
    return SqlOutboxReader([CommitSource(producer_group="g", topics=frozenset({TOPIC}), url=url)], clock=clock)


def test_a_replica_whose_sign_of_life_is_an_hour_ahead_denies_a_commit_that_it_lacks(databases: Databases) -> None:
    now_ms = databases.sweep(ahead_ms=HOUR_MS)
    databases.replica.catch_up()
    databases.replica.pause()
    clock = ManualClock(now_ms)
    databases.commit(World().commit_locally(key(1), created_at_ms=now_ms))
    with closing(reader_of(databases.replica_url, clock)) as reader:
        denied = reader.look_up(TOPIC, {key(1): now_ms + 10_000}, now_ms=now_ms)[key(1)]
        assert denied.is_unknown
        assert "ahead of the clocks here" in said(denied.reason)
        clock.advance(2 * 3_600)
        later_ms = clock.now_ms()
        found = reader.look_up(TOPIC, {key(1): now_ms + HOUR_MS // 2, key(2): now_ms - 1_000}, now_ms=later_ms)
        assert found[key(1)].is_unknown, "the clocks have caught up, and the sign is as old as it was"
        assert found[key(2)].is_absent, "what was committed before it was seen first is there"
        databases.replica.resume()
        databases.sweep()
        databases.replica.catch_up()
        assert reader.look_up(TOPIC, {key(1): 0}, now_ms=later_ms)[key(1)].is_found


def test_a_sign_of_life_that_is_ahead_of_a_host_that_was_set_back_alone_stops_verdicts(databases: Databases) -> None:
    now_ms = databases.sweep()
    databases.replica.catch_up()
    with closing(reader_of(databases.replica_url, ManualClock(now_ms - HOUR_MS))) as reader:
        assert reader.look_up(TOPIC, {key(1): now_ms - 60_000}, now_ms=now_ms)[key(1)].is_absent


def test_a_former_primary_whose_sign_of_life_is_ahead_denies_what_came_after_it_was_seen(databases: Databases) -> None:
    now_ms = databases.sweep(ahead_ms=HOUR_MS)
    clock = ManualClock(now_ms)
    with closing(reader_of(databases.url, clock)) as reader:
        assert reader.look_up(TOPIC, {key(1): now_ms - 1_000}, now_ms=now_ms)[key(1)].is_absent
        clock.advance(60)
        assert reader.look_up(TOPIC, {key(1): now_ms + 30_000}, now_ms=now_ms + 60_000)[key(1)].is_unknown


@pytest.mark.set_up("inbox_url leads to a replica")
def test_an_effect_that_a_paused_replica_lacks_is_neither_missing_nor_a_loss(databases: Databases) -> None:
    inbox = SqlInboxEvidence({World().subscriptions[0]: [databases.engine]})
    world = world_of(inbox=inbox)
    process = world.process()
    databases.replica.pause()
    delivered, lost = world.deliver(1), world.lose(2)
    world.clock.advance(20)
    world.broker.offsets["billing"] = len(world.broker.copies)  # consumed; the commit set was lost with Redis
    (copy,) = world.broker.copies
    databases.commit(world.inbox_row("billing", delivered, copy.content_digest))
    world.clock.advance(30)
    for _ in range(12):
        world.rounds(process, 1, consume=False)
    for unique_key in (delivered, lost):
        verdict, state, reason = verdict_of(world, unique_key)
        assert (verdict, state) == (Verdict.UNKNOWN, CandidateState.OPEN)
        assert NOT_PROVED in reason
    assert not world.ledger.repairs.of_keys("test", TOPIC, [delivered, lost]).get(lost)
    databases.replica.resume()
    databases.replica.catch_up()
    world.rounds(process, 12, consume=False)
    assert verdict_of(world, delivered)[0] is Verdict.CONSUMED, "what a replica has is an effect"


def test_a_tombstone_on_a_replica_is_final_however_old_the_replica_is(databases: Databases) -> None:
    world = World()
    databases.commit(world.commit_locally(key(1), state="ROLLED_BACK"))
    databases.replica.catch_up()
    databases.replica.pause()
    lookup: Lookup[OutboxRow] = databases.reader.look_up(TOPIC, {key(1): 2**62})[key(1)]
    assert [row.commit for row in lookup.records] == [None]


def test_the_primary_proves_absence_whenever_the_key_was_announced(databases: Databases) -> None:
    with closing(
        SqlOutboxReader([CommitSource(producer_group="g", topics=frozenset({TOPIC}), url=databases.url)])
    ) as reader:
        assert reader.look_up(TOPIC, {key(1): 2**62})[key(1)].is_absent
    evidence = SqlInboxEvidence({World().subscriptions[0]: [databases.primary]})
    assert evidence.look_up(World().subscriptions[0], [key(1)])[key(1)].is_absent


def test_every_login_may_read_the_whole_proof(databases: Databases) -> None:
    """One that may read the table of effects, and nothing else."""
    url = sa.make_url(databases.url)
    is_postgres = url.get_backend_name() == "postgresql"
    login = f"reader_{url.database}"[-30:]
    who, user = (login, f"CREATE ROLE {login} LOGIN") if is_postgres else (f"'{login}'@'localhost'", "")
    with writing(databases.primary) as connection:
        connection.exec_driver_sql(user or f"CREATE USER {who} IDENTIFIED BY 'private'")
        connection.exec_driver_sql(f"GRANT SELECT ON reconciler_inbox TO {who}")
    databases.replica.catch_up()
    for shown, is_primary in ((databases.url, True), (databases.replica_url, False)):
        engine = open_engine(sa.make_url(shown).set(username=login).render_as_string(hide_password=False))
        database = WitnessDatabase(engine, tables.inbox)
        assert database.unread() == ()
        assert database.role().is_primary is is_primary
        engine.dispose()
