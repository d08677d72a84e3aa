"""The statements by which `status` and sweeper look into an outbox, on the servers that people have."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from reconciler.clock import SystemClock
from reconciler.evidence.outbox_inspection import OutboxInspector
from reconciler.sql import schema
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import outbox, outbox_identity


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ],
)
def test_oldest_row_that_nobody_announced_and_last_sweep_come_from_one_statement(
    server: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{server}_server").create_database()
    schema.upgrade(url, "outbox")
    engine = open_engine(url)

    def look() -> tuple[int | None, str | None, int | None]:
        seen = OutboxInspector(engine).oldest_unannounced(producer_group="shop", topic="ORDERS")
        assert abs(seen.now_ms - SystemClock().now_ms()) < 60_000
        return seen.swept_at_ms, seen.oldest_key, seen.oldest_ms

    assert look() == (None, None, None)
    row = {"topic": "ORDERS", "producer_group": "shop", "state": "NEW"}
    with engine.begin() as connection:
        for key, at_ms in (("B" * 32, 60), ("A" * 32, 70)):
            connection.execute(sa.insert(outbox).values(unique_key=key, created_at_ms=at_ms, **row))
        connection.execute(sa.update(outbox_identity).where(outbox_identity.c.id == 2).values(swept_at_ms=50))
    assert look() == (50, "B" * 32, 60)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_outbox_identity DROP COLUMN swept_at_ms")
    assert look() == (None, "B" * 32, 60), "an outbox that is not upgraded"
    engine.dispose()


def test_groups_whose_oldest_new_row_is_due_are_found_by_the_database_s_own_time(database_url: str) -> None:
    schema.upgrade(database_url, "outbox")
    outbox_of_group = SqlOutbox(database_url)
    engine = open_engine(database_url)
    groups = ["due", "young", "announced", "future", "none"]
    assert outbox_of_group.with_due_rows(groups, older_than_seconds=0) == frozenset()
    with engine.begin() as connection:
        now_ms = database_now_ms(connection)
        for group, state, ago_ms in (
            ("due", "NEW", 6_000),
            ("due", "NEW", 0),
            ("young", "NEW", 0),
            ("announced", "ANNOUNCED", 6_000),
            ("future", "NEW", -60_000),
            ("not asked for", "NEW", 6_000),
        ):
            row = {"topic": "ORDERS", "producer_group": group, "state": state, "created_at_ms": now_ms - ago_ms}
            connection.execute(sa.insert(outbox).values(unique_key=f"{group} {ago_ms}", **row))
    assert outbox_of_group.with_due_rows(groups, older_than_seconds=5) == {"due"}
    assert outbox_of_group.with_due_rows(groups, older_than_seconds=0) == {"due", "young"}
    outbox_of_group.close()
    engine.dispose()


def test_rows_of_other_groups_are_counted_among_the_oldest_and_a_damaged_time_hides_no_other_group(
    database_url: str,
) -> None:
    schema.upgrade(database_url, "outbox")
    engine = open_engine(database_url)
    inspector, hour_ms = OutboxInspector(engine), 3_600_000
    assert inspector.of_others(["shop"]) == []
    now_ms = SystemClock().now_ms()
    rows = [("shop", now_ms), *[("kiosk", now_ms - hour_ms)] * 2, ("market", now_ms + 2 * hour_ms), ("poison", -1)]
    row = {"topic": "ORDERS", "state": "NEW"}
    with engine.begin() as connection:
        values = [
            {**row, "unique_key": f"{number:032X}", "producer_group": group, "created_at_ms": at_ms}
            for number, (group, at_ms) in enumerate(rows)
        ]
        connection.execute(sa.insert(outbox), [*values, {**values[1], "unique_key": "F" * 32, "state": "ANNOUNCED"}])
    found = [(one.producer_group, one.count, round(one.waited_seconds / 3600)) for one in inspector.of_others(["shop"])]
    assert [one for one in found if one[0] != "poison"] == [("market", 1, 2), ("kiosk", 2, 1)]
    engine.dispose()
