"""A hundred thousand rows that nobody can announce lie before a sound one, on the databases that people have."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest
import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.policy.sweeping import SweepRules
from tests.unit.producers.test_sweeping import MemoryInboxes
from tests.unit.producers.world import GROUP, TOPIC, MemoryAnnouncements, World, new_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: As many as a sweep reads in its pages.
POISON_ROWS = 10**5
INDEX_OF_NEW_ROWS = ("state", "created_at_ms")


def fill(world: World, *, places: int = 5) -> str:
    """Ten to the power of `places` poison rows, and a sound one behind them; its key."""
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    tables = " CROSS JOIN ".join(f"({digits}) AS t{place}" for place in range(places))
    number = " + ".join(f"t{place}.d * {10**place}" for place in range(places)) + " + 1"
    is_mysql = world.engine.dialect.name in {"mysql", "mariadb"}
    key = f"CONCAT('poison row ', {number})" if is_mysql else f"'poison row ' || ({number})"
    with world.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO reconciler_outbox (unique_key, topic, producer_group, state, created_at_ms) "
            f"SELECT {key}, '{TOPIC}', '{GROUP}', 'NEW', {number} FROM {tables}"
        )
    analyze(world)
    sound = new_key()
    world.insert_row(sound, created_at_ms=POISON_ROWS + 1)
    return sound


def analyze(world: World) -> None:
    """As the server does by itself a while after a table has grown."""
    if world.engine.dialect.name != "sqlite":
        with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            table = "" if world.engine.dialect.name == "postgresql" else "TABLE "
            connection.exec_driver_sql(f"ANALYZE {table}reconciler_outbox")


def plan_of(world: World, statement: str, parameters: object) -> str:
    """How the database would walk."""
    explain = "EXPLAIN QUERY PLAN" if world.engine.dialect.name == "sqlite" else "EXPLAIN"
    with world.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"{explain} {statement}", parameters)  # type: ignore[arg-type]  # as sent
        return "\n".join(str(row) for row in plan)


def test_the_first_sweep_announces_a_sound_row_behind_a_hundred_thousand_damaged_ones(world: World) -> None:
    sound = fill(world)
    announcements = MemoryAnnouncements()
    rules = SweepRules(sweep_after_seconds=0)
    with closing(SqlOutbox(world.url)) as outbox:
        sweeper = Sweeper(
            [OutboxSource(producer_group=GROUP, outbox=outbox)],
            announcer=Announcer(announcements, AnnouncementRoute(environment="test", queues=4)),
            subscriptions=(),
            inboxes=MemoryInboxes(),
            rules=rules,
        )
        first, second = sweeper.sweep_once(), sweeper.sweep_once()
    assert announcements.keys == [sound]
    half = rules.page_rows * rules.pages_maximum // 2
    assert [report.damaged for report in (first, second)] == [half, POISON_ROWS - half]
    assert [report.walk_rows for report in (first, second)] == [half, POISON_ROWS]


def test_pages_of_new_rows_stay_on_their_index_whatever_is_left_out(world: World) -> None:
    fill(world, places=4)
    with world.engine.begin() as connection:
        # As in a service that has lived: most rows are settled.
        connection.exec_driver_sql("UPDATE reconciler_outbox SET state = 'SETTLED' WHERE MOD(created_at_ms, 10) <> 0")
    analyze(world)
    (wanted,) = [
        index["name"]
        for index in sa.inspect(world.engine).get_indexes("reconciler_outbox")
        if tuple(index["column_names"]) == INDEX_OF_NEW_ROWS
    ]
    with closing(SqlOutbox(world.url)) as outbox:
        sent: list[tuple[str, object]] = []
        sa.event.listen(
            outbox.engine,
            "before_cursor_execute",
            lambda _1, _2, statement, values, *_: sent.append((statement, values)),
        )
        ask = partial(outbox.unannounced, GROUP, older_than_seconds=0, limit=1_000)
        oldest = ask().facts[0]
        for with_key in (True, False):
            ask(after=oldest, with_key=with_key)
    asked = [one for one in sent if " FROM reconciler_outbox" in one[0].replace("\n", " ")]
    assert len(asked) >= 3
    for statement, values in asked:
        assert str(wanted) in plan_of(world, statement, values)
