"""Inbox rows under a group's new name, on each database: once each, with their marks, whatever ended a copy before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from reconciler.clock import SystemClock
from reconciler.sql import renamed_group, schema
from reconciler.sql.engines import open_engine, writing
from reconciler.sql.renamed_group import PAGE_ROWS, RenamedRows
from reconciler.sql.tables import inbox

ROWS = PAGE_ROWS + 3


class Died(Exception):
    """The process is gone."""


def row(number: int, group: str = "billing", **changes: Any) -> dict[str, Any]:
    values = {
        "consumer_group": group, "unique_key": f"{number:032X}", "topic": "ORDERS", "dedupe_key": None,
        "duplicate_of": None, "content_digest": bytes([number % 256]) * 32, "source": "consumer",
        "applied_at_ms": 1_000 + number, "incomplete": None,
    }  # fmt: skip
    return values | changes


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    schema.upgrade(database_url, "inbox")
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


def write(engine: sa.Engine, *rows: dict[str, Any]) -> None:
    with writing(engine) as connection:
        connection.execute(sa.insert(inbox), list(rows))


def rows_of(engine: sa.Engine, group: str) -> list[dict[str, Any]]:
    query = sa.select(inbox).where(inbox.c.consumer_group == group).order_by(inbox.c.unique_key)
    with engine.connect() as connection:
        return [dict(found) for found in connection.execute(query).mappings()]


def test_a_copy_that_died_is_gone_on_with_and_gives_every_row_once(engine: sa.Engine) -> None:
    kept = row(7, source="replay"), row(8, dedupe_key="order-8")
    others = [row(number) for number in range(ROWS) if number not in (7, 8)]
    write(engine, *kept, *others, row(1, "stock"))
    rows = RenamedRows(engine, old="billing", new="invoices")
    assert (rows.count().rows, rows.count().missing) == (ROWS, ROWS)

    def die(_rows: int) -> None:
        raise Died

    with pytest.raises(Died):
        rows.copy(die)
    assert rows.count().missing == ROWS - PAGE_ROWS
    seen: list[int] = []
    assert rows.copy(seen.append) == ROWS - PAGE_ROWS
    assert sum(seen) == ROWS
    assert rows.copy(seen.append) == 0
    before = rows_of(engine, "billing")
    assert [one | {"consumer_group": "invoices"} for one in before] == rows_of(engine, "invoices")
    assert before[7]["source"] == "replay"
    assert len(rows_of(engine, "stock")) == 1


def test_an_incomplete_row_is_ended_under_the_old_name_before_it_is_copied(engine: sa.Engine) -> None:
    write(engine, row(1), row(2, incomplete="a transaction"))
    rows = RenamedRows(engine, old="billing", new="invoices")
    assert (rows.count().missing, rows.count().incomplete, rows.copy(lambda _: None)) == (1, 1, 1)
    assert (rows.count().missing, rows.count().incomplete) == (0, 1)
    with writing(engine) as connection:
        connection.execute(sa.update(inbox).where(inbox.c.incomplete.is_not(None)).values(incomplete=None))
    assert (rows.count().missing, rows.count().incomplete, rows.copy(lambda _: None)) == (1, 0, 1)
    assert [one["incomplete"] for one in rows_of(engine, "invoices")] == [None, None]


def test_a_row_of_the_new_name_stays_and_a_business_id_has_one_owner(engine: sa.Engine) -> None:
    theirs = row(1, "invoices", content_digest=b"T" * 32), row(9, "invoices", dedupe_key="order-2")
    write(engine, row(1), row(2, dedupe_key="order-2"), row(3, dedupe_key="order-3"), *theirs)
    assert RenamedRows(engine, old="billing", new="invoices").copy(lambda _: None) == 2
    first, second, third, ninth = rows_of(engine, "invoices")
    assert first["content_digest"] == b"T" * 32
    assert (second["dedupe_key"], second["duplicate_of"]) == (None, f"{9:032X}")
    assert (third["dedupe_key"], third["duplicate_of"]) == ("order-3", None)
    assert ninth == theirs[1]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed_group, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(renamed_group, "LOOK_AGAIN_SECONDS", 0.1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_row_that_a_transaction_has_written_and_not_committed_is_told_until_it_ends(
    engine: sa.Engine, database_url: str, ends: str
) -> None:
    """As of a member whose process was stopped in the middle of a message."""
    write(engine, row(1), row(9))
    ours = open_engine(database_url, lock_timeout_seconds=0.2)
    rows = RenamedRows(ours, old="billing", new="invoices")
    assert rows.writers() == ""
    with engine.connect() as stopped:
        transaction = stopped.begin()
        stopped.execute(sa.insert(inbox), [row(7)])
        assert rows.writers() != ""
        assert rows.count().rows == 2
        getattr(transaction, ends)()
        assert rows.writers() == ""
    assert rows.count().rows == (3 if ends == "commit" else 2)
    ours.dispose()


@pytest.mark.sql("postgres")
def test_transactions_that_come_and_go_are_waited_for_and_hold_nobody_up(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other groups have the same table: one that begins later is not waited for."""
    schema.upgrade(postgres_url, "inbox")
    engine = open_engine(postgres_url)
    rows = RenamedRows(engine, old="billing", new="invoices")
    with ExitStack() as connections:

        def begins(number: int) -> sa.Connection:
            connection = connections.enter_context(engine.connect())
            connection.begin()
            connection.execute(sa.insert(inbox), [row(number, "stock")])
            return connection

        first = begins(1)

        def looks_again(*_: object) -> bool:
            begins(2)
            first.commit()
            return False

        monkeypatch.setattr(SystemClock, "wait", looks_again)
        assert rows.writers() == ""
    engine.dispose()


def test_an_inbox_that_was_not_upgraded_is_copied_without_marks(database_url: str) -> None:
    config, engine = schema._config("inbox"), open_engine(database_url)
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001_inbox")
        columns = [column for column in inbox.c if column.name != "incomplete"]
        values = {name: value for name, value in row(1).items() if name != "incomplete"}
        connection.execute(sa.insert(sa.table("reconciler_inbox", *(sa.column(c.name) for c in columns))), [values])
    assert RenamedRows(engine, old="billing", new="invoices").copy(lambda _: None) == 1
    schema.upgrade(database_url, "inbox")
    assert [one["consumer_group"] for one in rows_of(engine, "invoices")] == ["invoices"]
    engine.dispose()
