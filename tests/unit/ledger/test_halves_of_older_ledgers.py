"""A ledger that was not upgraded, or lost a row's value, says that it cannot keep halves; it is told once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.noted_halves import SqlNotedHalves
from reconciler.policy.commit_query import digest_of
from reconciler.policy.ports.ledger import NotedHalf
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import half

A = digest_of("a")
ONE = NotedHalf(unique_key=f"{1:032X}", broker="broker-a", key_digest=A, tag_digest=None, stored_at_ms=5)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    yield made
    made.dispose()


def test_without_the_table_nothing_is_kept_until_it_is_there(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    halves = SqlNotedHalves(LedgerDatabase(engine))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not halves.note("test", "ORDERS", [ONE])
            assert halves.of_keys("test", "ORDERS", [A]) is None
            assert not halves.noted("test", "ORDERS", [ONE.unique_key]), "no half was ever read"
    assert caplog.text.count("halves_not_kept") == 1
    half.create(engine)
    assert halves.note("test", "ORDERS", [ONE])
    assert halves.of_keys("test", "ORDERS", [A]) == {A: [ONE]}
    assert set(halves.noted("test", "ORDERS", [ONE.unique_key])) == {ONE.unique_key}


def test_of_a_key_whose_row_is_damaged_nothing_is_known(engine: sa.Engine) -> None:
    half.create(engine)
    halves = SqlNotedHalves(LedgerDatabase(engine))
    halves.note("test", "ORDERS", [ONE])
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE reconciler_half SET unique_key = 'x'")
    assert halves.of_keys("test", "ORDERS", [A]) is None


def test_a_name_that_no_database_stores_is_not_noted(engine: sa.Engine) -> None:
    half.create(engine)
    assert not SqlNotedHalves(LedgerDatabase(engine)).note("test", "O" * 200, [ONE])
