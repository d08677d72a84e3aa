"""The judge of chaos runs: each accident that is planted is counted as that accident and as no other."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.chaos.checker import QuietWindow, judge, missing_effects, unfinished
from tests.chaos.planted import commit, run

pytestmark = [pytest.mark.sql, pytest.mark.xdist_group("chaos")]

WINDOW = QuietWindow(producer_group="solo", since_ms=1_000, until_ms=2_000)


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
