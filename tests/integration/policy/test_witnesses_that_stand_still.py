"""One of two databases stands still: its processes are stopped, and the kernel goes on to answer for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import sqlalchemy as sa

from reconciler.clock import SystemClock
from reconciler.errors import DatabaseSilent, StatementTooSlow
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.policy.commit_evidence import CommitSource
from reconciler.silence import PAUSES
from reconciler.sql import schema, tables
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.witness_database import WitnessDatabase
from tests.integration.policy.conftest import SERVER_ENDS_SECONDS, STATEMENT_SECONDS, Server, Standstill
from tests.services.postgres import PostgresServer

LOOK_UPS = 20
TOPIC = "ORDERS"


@pytest.fixture
def standing_url(server: Server) -> str:
    """An outbox on a server of its own."""
    url = server.create_database()
    schema.upgrade(url, "outbox")
    return url


@pytest.fixture
def healthy_url(database_url: str) -> str:
    """An outbox on another one."""
    schema.upgrade(database_url, "outbox")
    return database_url


def put(url: str, unique_key: str) -> None:
    """A committed row."""
    engine = open_engine(url)
    row = {"unique_key": unique_key, "topic": TOPIC, "producer_group": "orders", "state": "NEW", "created_at_ms": 1}
    with writing(engine) as connection:
        connection.execute(sa.insert(tables.outbox).values(row))
    engine.dispose()


@contextmanager
def frozen(standstill: Standstill) -> Iterator[None]:
    """Within the block the server stands still."""
    standstill.begin()
    try:
        yield
    finally:
        standstill.end()


def key(number: int) -> str:
    """A unique key."""
    return f"{number:032X}"


def test_a_database_that_stands_still_costs_its_own_keys_their_answer_and_its_siblings_none(
    standstill: Standstill, standing_url: str, healthy_url: str
) -> None:
    put(healthy_url, key(1))
    put(standing_url, key(2))
    outboxes = [
        CommitSource(producer_group="standing", topics=frozenset({TOPIC}), url=standing_url),
        CommitSource(producer_group="healthy", topics=frozenset({TOPIC}), url=healthy_url),
    ]
    asked = {key(1): 0, key(2): 0}
    with closing(SqlOutboxReader(outboxes, statement_seconds=STATEMENT_SECONDS)) as reader:
        assert all(found.is_found for found in reader.look_up(TOPIC, asked).values())
        unasked = 0
        with frozen(standstill):
            for _ in range(LOOK_UPS):  # pages and shards of a round: one deadline for all of them
                answers = reader.look_up(TOPIC, asked)
                assert answers[key(1)].is_found
                assert answers[key(2)].is_unknown
                assert "no answer in time" in str(answers[key(2)].answers)
                unasked += "asked again later" in str(answers[key(2)].answers)
        assert unasked > LOOK_UPS / 2, "on a busy machine some come after its pause"


def test_a_silent_database_is_asked_by_nobody_until_its_pause_is_over_and_by_all_when_it_answers(
    standstill: Standstill, standing_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(standing_url, statement_seconds=STATEMENT_SECONDS)
    with reading(engine) as connection:
        connection.execute(sa.text("SELECT 1"))
    before = SystemClock().monotonic_seconds()
    with frozen(standstill), pytest.raises(DatabaseSilent), reading(engine) as connection:
        connection.execute(sa.text("SELECT 1"))
    later = SystemClock().monotonic_seconds() + PAUSES.first_seconds
    monkeypatch.setattr("reconciler.clock.SystemClock.monotonic_seconds", lambda _: before)
    with pytest.raises(DatabaseSilent, match="asked again later"), reading(engine):
        pytest.fail("it is not asked within the pause")
    monkeypatch.setattr("reconciler.clock.SystemClock.monotonic_seconds", lambda _: later)
    with reading(engine) as connection:
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
    engine.dispose()


@pytest.mark.usefixtures("standstill")
def test_a_statement_that_takes_too_long_is_ended_by_the_server(server: Server, standing_url: str) -> None:
    engine = open_engine(standing_url, statement_seconds=SERVER_ENDS_SECONDS)
    pause = "pg_sleep" if isinstance(server, PostgresServer) else "SLEEP"
    with pytest.raises(StatementTooSlow), reading(engine) as connection:
        connection.execute(sa.text(f"SELECT {pause}(60)"))
    with reading(engine) as connection:  # it answers: it is asked as ever
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
    engine.dispose()


@pytest.mark.usefixtures("standstill")
def test_a_look_up_that_is_too_slow_is_halved_before_its_witness_alone_is_called_away(
    server: Server, standing_url: str
) -> None:
    keys = [key(number) for number in range(16)]
    for one in keys:
        put(standing_url, one)
    engine = open_engine(standing_url, statement_seconds=SERVER_ENDS_SECONDS)
    witness = WitnessDatabase(engine, tables.outbox)
    column = tables.outbox.c.unique_key

    def asked(count: int, *, quick_keys: int) -> set[str]:
        """Of keys whose statement takes no time at all, or with more of them for ever."""
        pause = sa.func.pg_sleep if isinstance(server, PostgresServer) else sa.func.sleep
        seconds = sa.case((sa.func.count().over() > quick_keys, 60), else_=0)
        role, rows = witness.probe(sa.select(column, pause(seconds).label("slept")), column, keys[:count])
        assert role.is_primary is True
        return {row.unique_key for row in rows}

    assert asked(16, quick_keys=4) == set(keys), "16 and 8 are too many, 4 are not"
    with pytest.raises(StatementTooSlow):
        asked(16, quick_keys=0)
    with pytest.raises(DatabaseSilent, match="asked again later"):
        asked(1, quick_keys=1)
    with reading(engine) as connection:  # a ledger on the same URL, say: the server answers, and everybody else asks it
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
    other = open_engine(standing_url, statement_seconds=SERVER_ENDS_SECONDS)
    WitnessDatabase(other, tables.outbox_identity).probe(
        sa.select(tables.outbox_identity.c.identity), tables.outbox_identity.c.identity, ["one"]
    )
    with pytest.raises(DatabaseSilent, match="asked again later"):
        WitnessDatabase(other, tables.outbox).probe(sa.select(column), column, keys[:1])
    other.dispose()
    engine.dispose()


def test_without_a_deadline_a_statement_may_take_as_long_as_it_likes(server: Server, standing_url: str) -> None:
    engine = open_engine(standing_url)
    pause = "pg_sleep" if isinstance(server, PostgresServer) else "SLEEP"
    with reading(engine) as connection:
        connection.execute(sa.text(f"SELECT {pause}(1.5)"))
        time_outs = (
            "SELECT concat_ws(',', current_setting('statement_timeout'), "
            "current_setting('idle_in_transaction_session_timeout'))"
            if isinstance(server, PostgresServer)
            else "SELECT CONCAT_WS(',', ROUND(@@max_statement_time), 0)"
        )
        assert connection.execute(sa.text(time_outs)).scalar_one() == "0,0"
    engine.dispose()
