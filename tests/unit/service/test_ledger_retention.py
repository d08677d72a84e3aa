"""Old rows of the ledger: as many as come in an hour must go in an hour, and a stop must not wait for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.commands.run import RETENTION_PASSES_MAX, delete_old_rows
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.retention import SqlRetention
from reconciler.sql.tables import ledger_metadata, quarantine
from tests.engines import with_tables

ROWS_A_PASS = 6
TOO_OLD = {
    "environment": "test", "unique_key_topic": "ORDERS_KEYS", "broker": "a", "queue_id": 0, "reason": "SHAPE",
    "detail": "", "body": b"", "seen_at_ms": 0,
}  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with with_tables(f"sqlite:///{tmp_path}/ledger.db", ledger_metadata) as made:
        yield made


def fill(engine: sa.Engine, rows: int) -> SqlRetention:
    """So many rows that are too old; passes of ROWS_A_PASS."""
    with engine.begin() as connection:
        connection.execute(sa.insert(quarantine), [TOO_OLD | {"queue_offset": number} for number in range(rows)])
    return SqlRetention(LedgerDatabase(engine), keep_days=1, rows_a_transaction=3, transactions_a_call=2)


def left(engine: sa.Engine) -> int:
    with engine.begin() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(quarantine)).scalar_one())


def test_more_old_rows_than_one_pass_deletes_do_not_pile_up_from_hour_to_hour(engine: sa.Engine) -> None:
    retention = fill(engine, 4 * ROWS_A_PASS + 1)
    delete_old_rows(lambda: retention.delete_old("test").has_more, stop=threading.Event(), clock=ManualClock())
    assert left(engine) == 0


def test_a_turn_is_bounded_and_the_next_one_deletes_the_rest(engine: sa.Engine) -> None:
    retention = fill(engine, RETENTION_PASSES_MAX * ROWS_A_PASS + 5)
    delete_old_rows(lambda: retention.delete_old("test").has_more, stop=threading.Event(), clock=ManualClock())
    assert left(engine) == 5
    delete_old_rows(lambda: retention.delete_old("test").has_more, stop=threading.Event(), clock=ManualClock())
    assert left(engine) == 0


def test_a_service_that_stops_does_not_wait_until_all_is_deleted(engine: sa.Engine) -> None:
    retention, stop = fill(engine, 4 * ROWS_A_PASS), threading.Event()
    stop.set()
    delete_old_rows(lambda: retention.delete_old("test").has_more, stop=stop, clock=ManualClock())
    assert left(engine) == 3 * ROWS_A_PASS
