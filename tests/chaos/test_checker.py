"""The judge of chaos runs: each accident that is planted is counted as that accident and as no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from reconciler.sql import schema
from tests.chaos.checker import QuietWindow, judge, missing_effects, unfinished
from tests.chaos.job import GROUPS
from tests.chaos.truth import make_tables
from tests.services import postgres
from tests.services.postgres import PostgresServer
from tests.services.requirements import require

pytestmark = [pytest.mark.sql, pytest.mark.xdist_group("chaos")]

WINDOW = QuietWindow(producer_group="solo", since_ms=1_000, until_ms=2_000)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    require(postgres.missing())
    with PostgresServer() as running:
        yield running


@pytest.fixture
def engine(server: PostgresServer) -> Iterator[sa.Engine]:
    url = server.create_database("chaos")
    for tree in ("outbox", "inbox", "ledger"):
        schema.upgrade(url, tree)
    opened = sa.create_engine(url)
    make_tables(opened)
    for key in ("A", "B"):
        commit(opened, key)
    yield opened
    opened.dispose()


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def commit(engine: sa.Engine, key: str, *, intent: str = "commit", effects: tuple[str, ...] = GROUPS) -> None:
    """A message of the dead group that was committed at 1 500 and took effect half a second later."""
    run(
        engine,
        f"INSERT INTO attempts VALUES ('{key}', '{intent}', 'digest', 0)",
        f"INSERT INTO orders VALUES ('{key}')",
        "INSERT INTO reconciler_outbox (unique_key, topic, producer_group, state, created_at_ms)"
        f" VALUES ('{key}', 'T', 'solo', 'ANNOUNCED', 1500)",
        *(f"INSERT INTO effects VALUES ('{group}', '{key}', 'digest', 2000)" for group in effects),
    )


@pytest.mark.parametrize(
    ("accident", "statement"),
    [
        ("lost", "DELETE FROM effects WHERE key = 'A' AND consumer_group = 'stock'"),
        ("double", "INSERT INTO effects VALUES ('stock', 'A', 'digest', 2000)"),
        ("phantom", "INSERT INTO effects VALUES ('stock', 'never committed', 'digest', 2000)"),
        ("phantom", "UPDATE attempts SET intent = 'roll-back' WHERE key = 'A'"),
        ("body_differs", "UPDATE attempts SET digest = 'another' WHERE key = 'A'"),
        ("unaccounted", "INSERT INTO orders VALUES ('without an outbox row')"),
        ("unaccounted", "DELETE FROM orders WHERE key = 'A'"),
    ],
)
def test_a_planted_accident_is_counted_as_what_it_is(engine: sa.Engine, accident: str, statement: str) -> None:
    assert sum(judge(engine, []).accidents.values()) == 0
    run(engine, statement)
    counted = {name for name, number in judge(engine, []).accidents.items() if number}
    assert counted == {accident}


def test_a_loss_outside_the_quiet_window_or_of_a_living_producer_is_not_its_latency(engine: sa.Engine) -> None:
    for key in ("late", "living"):
        commit(engine, key)
    run(
        engine,
        "INSERT INTO lost_ends VALUES ('A'), ('late'), ('living')",
        "UPDATE effects SET at_ms = 4500 WHERE key = 'A' AND consumer_group = 'stock'",
        "UPDATE reconciler_outbox SET created_at_ms = 2001 WHERE unique_key = 'late'",
        "UPDATE reconciler_outbox SET producer_group = 'orders' WHERE unique_key = 'living'",
    )
    latencies = judge(engine, [WINDOW]).latency_seconds
    assert (latencies["quiet_repaired"]["n"], latencies["quiet_repaired"]["max"]) == (1, 3.0)
    assert (latencies["quiet_living_repaired"]["n"], latencies["quiet_living_repaired"]["max"]) == (1, 0.5)


def test_a_run_with_a_missing_effect_is_not_at_rest(engine: sa.Engine) -> None:
    assert missing_effects(engine, WINDOW) == 4
    assert unfinished(engine) == "4 keys without effect"
