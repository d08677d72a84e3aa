"""A row of exactly an age limit is read by both of two sweeps, or by neither."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from checkback_producers import outbox as outbox_module
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import OutboxPage
from reconciler.clock import ManualClock
from tests.unit.producers.world import GROUP, World, new_key

NOW_MS = 1_000_000
LIMIT_SECONDS = 60.0
DAYS_40_MS = 40 * 86_400_000
AGES_MS = (59_999, 60_000, 60_001)


@pytest.fixture
def outbox(world: World, monkeypatch: pytest.MonkeyPatch) -> SqlOutbox:
    """An outbox whose database time stands still."""
    stand_still(monkeypatch, NOW_MS)
    return world.outbox()


def stand_still(monkeypatch: pytest.MonkeyPatch, at_ms: int) -> None:
    """Database time, in statements and read by itself."""
    monkeypatch.setattr(outbox_module, "now_ms", lambda _dialect: sa.literal(at_ms, sa.BigInteger()))
    monkeypatch.setattr(outbox_module, "database_now_ms", lambda _connection: at_ms)


def rows(world: World, state: str, **times: Callable[[int], int]) -> dict[int, str]:
    """Age -> key of a row whose times are that long ago."""
    keys = {age: new_key() for age in AGES_MS}
    for age, key in keys.items():
        world.insert_row(key, state=state, **{name: at(age) for name, at in times.items()})
    return keys


def ago(age_ms: int) -> int:
    return NOW_MS - age_ms


def read(page: OutboxPage) -> list[str]:
    return [fact.unique_key for fact in page.facts]


def test_a_new_row_waits_for_its_producer_a_millisecond_too_long_or_too_short(world: World, outbox: SqlOutbox) -> None:
    keys = rows(world, "NEW", created_at_ms=ago)
    page = outbox.unannounced(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10)
    assert read(page) == [keys[60_001], keys[60_000]]


def test_a_row_of_the_future_is_swept_and_looked_at_for_its_clock_was_set_back(world: World, outbox: SqlOutbox) -> None:
    new, announced = new_key(), new_key()
    world.insert_row(new, state="NEW", created_at_ms=NOW_MS + 1)
    world.insert_row(announced, state="ANNOUNCED", created_at_ms=1, announced_at_ms=NOW_MS + 3_600_000)
    assert read(outbox.unannounced(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10)) == [new]
    assert read(outbox.announced(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10, after=None)) == [announced]


def test_an_announced_row_is_looked_at_by_the_age_of_its_record(world: World, outbox: SqlOutbox) -> None:
    keys = rows(world, "ANNOUNCED", created_at_ms=lambda _: 1, announced_at_ms=ago)
    page = outbox.announced(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10, after=None)
    assert read(page) == [keys[60_001], keys[60_000]]
    following = outbox.announced(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10, after=page.facts[0])
    assert read(following) == [keys[60_000]]


@pytest.mark.parametrize(("database_ms", "host_ms"), [(0, 0), (DAYS_40_MS, 0), (0, DAYS_40_MS)])
def test_a_row_that_no_broker_can_ask_for_is_looked_at_again_and_one_that_it_can_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch, database_ms: int, host_ms: int
) -> None:
    """One of two clocks may be ahead."""
    stand_still(monkeypatch, NOW_MS + database_ms)
    outbox = world.outbox(clock=ManualClock(NOW_MS + host_ms))
    keys = rows(world, "SETTLED", created_at_ms=ago, settled_at_ms=lambda _: NOW_MS)
    page = outbox.written(GROUP, younger_than_seconds=LIMIT_SECONDS, limit=10, after=None)
    assert read(page) == [keys[59_999]]


@pytest.mark.parametrize("state", ["SETTLED", "ROLLED_BACK"])
def test_a_finished_row_is_deleted_before_its_time(world: World, outbox: SqlOutbox, state: str) -> None:
    keys = rows(world, state, created_at_ms=ago, settled_at_ms=ago)
    late = new_key()
    world.insert_row(late, state="SETTLED", created_at_ms=ago(70_000), settled_at_ms=ago(59_999))
    for open_state in ("NEW", "ANNOUNCED"):
        world.insert_row(new_key(), state=open_state, created_at_ms=1, announced_at_ms=1)
    assert outbox.delete_finished(GROUP, older_than_seconds=LIMIT_SECONDS, limit=1) == 1
    assert outbox.delete_finished(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10) == 1
    assert outbox.delete_finished(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10) == 0
    assert [world.state(keys[age]) for age in AGES_MS] == [state, None, None]
    assert world.state(late) == "SETTLED"


@pytest.mark.parametrize("state", ["SETTLED", "ROLLED_BACK"])
def test_a_database_clock_that_jumps_ahead_deletes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    clock = ManualClock(NOW_MS)  # the host's
    stand_still(monkeypatch, NOW_MS + DAYS_40_MS)
    outbox = world.outbox(clock=clock)
    key = rows(world, state, created_at_ms=ago, settled_at_ms=ago)[59_999]
    assert outbox.delete_finished(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10) == 2, "old by both clocks"
    assert world.state(key) == state
    clock.advance(0.001)
    assert outbox.delete_finished(GROUP, older_than_seconds=LIMIT_SECONDS, limit=10) == 1
