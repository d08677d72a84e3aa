"""Old finished rows are deleted on every database; what may still be needed never is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from checkback_producers.outbox import SqlOutbox
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import reading
from tests.unit.producers.world import GROUP, World, new_key

DAY_MS = 86_400_000
KEEP_SECONDS = 30 * 86_400.0


@pytest.fixture
def outbox(world: World) -> Iterator[SqlOutbox]:
    opened = SqlOutbox(world.url)
    yield opened
    opened.close()


def days_ago(world: World, days: float) -> int:
    with reading(world.engine) as connection:
        return database_now_ms(connection) - int(days * DAY_MS)


def row(world: World, state: str, *, created: float, settled: float | None = None, **values: object) -> str:
    """A row that was created and settled `created` and `settled` days ago."""
    key = new_key()
    times: dict[str, object] = {"created_at_ms": days_ago(world, created)}
    if settled is not None:
        times["settled_at_ms"] = days_ago(world, settled)
    world.insert_row(key, state=state, **times, **values)
    return key


def test_only_old_settled_rows_and_tombstones_of_the_group_are_deleted(world: World, outbox: SqlOutbox) -> None:
    gone = [row(world, "SETTLED", created=40, settled=31), row(world, "ROLLED_BACK", created=30.01)]
    kept = {
        row(world, "NEW", created=400): "NEW",
        row(world, "ANNOUNCED", created=400): "ANNOUNCED",
        row(world, "SETTLED", created=400, settled=29.99): "SETTLED",
        row(world, "ROLLED_BACK", created=29.99): "ROLLED_BACK",
        row(world, "SETTLED", created=400, settled=399, producer_group="another"): "SETTLED",
    }
    assert outbox.delete_finished(GROUP, older_than_seconds=KEEP_SECONDS, limit=100) == 2
    assert [world.state(key) for key in gone] == [None, None]
    assert {key: world.state(key) for key in kept} == kept
    assert outbox.delete_finished(GROUP, older_than_seconds=KEEP_SECONDS, limit=100) == 0


def test_one_call_deletes_no_more_than_its_limit(world: World, outbox: SqlOutbox) -> None:
    for _ in range(5):
        row(world, "SETTLED", created=50, settled=50)
    deleted = [outbox.delete_finished(GROUP, older_than_seconds=KEEP_SECONDS, limit=2) for _ in range(4)]
    assert deleted == [2, 2, 1, 0]


@pytest.mark.pooled
def test_several_sweepers_delete_each_row_once_and_none_too_many(world: World) -> None:
    old = [row(world, "SETTLED", created=50, settled=50) for _ in range(60)]
    young = row(world, "SETTLED", created=50, settled=1)

    def delete(_: int) -> int:
        mine = SqlOutbox(world.url)
        total = 0
        while deleted := mine.delete_finished(GROUP, older_than_seconds=KEEP_SECONDS, limit=200):
            total += deleted
        mine.close()
        return total

    with ThreadPoolExecutor(3) as three:
        assert sum(three.map(delete, range(3))) == len(old)
    assert {world.state(key) for key in old} == {None}
    assert world.state(young) == "SETTLED"
