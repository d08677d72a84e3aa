"""A table that has just grown has no statistics, or old ones: reading 500 keys must not read everybody's rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.key_probes import probe
from reconciler.sql.tables import candidate, inbox
from tests.services import postgres
from tests.services.postgres import PostgresServer
from tests.services.requirements import require

pytestmark = [pytest.mark.sql, pytest.mark.slow]

ROWS, ASKED = 20_000, 500
_KEY = "lpad(to_hex(n), 32, '0')"
_NUMBERS = "generate_series(CAST(:first AS bigint), CAST(:last AS bigint))"
_READ = sa.text(
    "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE relname = :name"
)


def key(number: int) -> str:
    return f"{number:032x}"


@contextmanager
def disposing(engine: sa.Engine) -> Iterator[sa.Engine]:
    try:
        yield engine
    finally:
        engine.dispose()


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """A ledger and an inbox that have grown since the server last looked at them."""
    require(postgres.missing())
    with PostgresServer(options={"autovacuum": "off"}) as server:
        found = {tree: server.create_database(tree) for tree in ("ledger", "inbox")}
        for tree, url in found.items():
            schema.upgrade(url, tree)
        fill(found["ledger"], "reconciler_candidate", "environment, topic, consumer_group, shard, state, verdict,"
             " evidence, attempts, first_seen_ms, next_at_ms, updated_at_ms",
             "'e', 'ORDERS', 'billing', 0, 'SETTLED', 'CONSUMED', '{}', 1, 0, 0, 0")  # fmt: skip
        fill(found["inbox"], "reconciler_inbox", "consumer_group, topic, source, applied_at_ms",
             "'billing', 'ORDERS', 'consumer', n")  # fmt: skip
        yield found


def fill(url: str, table: str, columns: str, values: str) -> None:
    """100 rows that the planner has seen, and ROWS that it has not."""
    insert = f"INSERT INTO {table} (unique_key, {columns}) SELECT {_KEY}, {values} FROM {_NUMBERS} n"
    with disposing(open_engine(url)) as engine, engine.begin() as connection:
        connection.execute(sa.text(insert), {"first": 0, "last": 99})
        connection.execute(sa.text(f"ANALYZE {table}"))
        connection.execute(sa.text(insert), {"first": 100, "last": ROWS - 1})


@pytest.mark.parametrize(
    ("tree", "query", "column"),
    [
        (
            "ledger",
            sa.select(candidate).where(
                candidate.c.environment == "e", candidate.c.topic == "ORDERS", candidate.c.consumer_group == "billing"
            ),
            candidate.c.unique_key,
        ),
        ("inbox", sa.select(inbox).where(inbox.c.consumer_group == "billing"), inbox.c.unique_key),
    ],
)
def test_keys_are_found_without_reading_the_rows_of_all_others(
    urls: dict[str, str], tree: str, query: sa.Select[Any], column: sa.Column[str]
) -> None:
    keys = [key(number) for number in range(ROWS - ASKED // 2, ROWS + ASKED // 2)]
    with disposing(open_engine(urls[tree])) as engine, engine.begin() as connection:
        found = probe(connection, query, column, keys).all()
        rows_read = int(connection.execute(_READ, {"name": column.table.name}).scalar_one())
        assert {row.unique_key for row in found} == set(keys[: ASKED // 2])
        assert rows_read == len(found)
        # The plain list, for comparison: otherwise this test would show nothing.
        assert len(connection.execute(query.where(column.in_(keys))).all()) == len(found)
        assert int(connection.execute(_READ, {"name": column.table.name}).scalar_one()) - rows_read >= ROWS
