"""Tables grow for days: reading some keys, or what is due, must not read all rows.

A table that has just grown has no statistics, or old ones; and PostgreSQL uses no index for a time that it would have
to ask for again for each row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.candidates import SqlCandidates
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.repairs import SqlRepairs
from reconciler.ledger.retention import SqlRetention
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.sql import schema
from reconciler.sql.database_time import now_ms
from reconciler.sql.engines import open_engine
from reconciler.sql.key_probes import probe
from reconciler.sql.tables import candidate, inbox
from reconciler.sql.witness_database import WitnessDatabase
from tests.engines import begun, disposed
from tests.services import postgres
from tests.services.postgres import PostgresServer
from tests.services.requirements import require

pytestmark = [pytest.mark.sql, pytest.mark.slow, pytest.mark.xdist_group("grown-tables")]  # filled once

ROWS, ASKED = 20_000, 500
_KEY = "upper(lpad(to_hex(n), 32, '0'))"
_NUMBERS = "generate_series(CAST(:first AS bigint), CAST(:last AS bigint))"
_READ = sa.text(
    "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE relname = :name"
)


def key(number: int) -> str:
    return f"{number:032X}"


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """A ledger and an inbox that have grown since the server last looked at them."""
    require(postgres.missing())
    with PostgresServer(options={"autovacuum": "off"}) as server:
        found = {tree: server.create_database(tree) for tree in ("ledger", "inbox", "outbox")}
        for tree, url in found.items():
            schema.upgrade(url, tree)
        fill(found["ledger"], "reconciler_candidate", "environment, topic, consumer_group, shard, state, verdict,"
             " evidence, attempts, first_seen_ms, next_at_ms, updated_at_ms",
             "'e', 'ORDERS', 'billing', 0, 'SETTLED', 'CONSUMED', '{}', 1, 0, 0, 0")  # fmt: skip
        fill(found["ledger"], "reconciler_repair", "environment, topic, scope, state, rung, attempts, next_at_ms,"
             " created_at_ms, done_at_ms", "'e', 'ORDERS', '*', CASE WHEN n % 9 = 0 THEN 'FAILED' ELSE 'DONE' END,"
             " 'end', 1, 0, 0, 0")  # fmt: skip
        fill(found["inbox"], "reconciler_inbox", "consumer_group, topic, source, applied_at_ms",
             "'billing', 'ORDERS', 'consumer', n")  # fmt: skip
        now_ms = round(time.time() * 1000)
        fill(found["outbox"], "reconciler_outbox", "topic, producer_group, state, created_at_ms, announced_at_ms,"
             " settled_at_ms", f"'ORDERS', 'orders', CASE WHEN n % 2 = 0 THEN 'SETTLED' ELSE 'ANNOUNCED' END,"
             f" {now_ms}, {now_ms}, {now_ms}")  # fmt: skip
        yield found


def fill(url: str, table: str, columns: str, values: str) -> None:
    """100 rows that the planner has seen, and ROWS that it has not."""
    insert = f"INSERT INTO {table} (unique_key, {columns}) SELECT {_KEY}, {values} FROM {_NUMBERS} n"
    with begun(url) as connection:
        connection.execute(sa.text(insert), {"first": 0, "last": 99})
        connection.execute(sa.text(f"ANALYZE {table}"))
        connection.execute(sa.text(insert), {"first": 100, "last": ROWS - 1})


def test_a_ledger_that_has_never_been_looked_at_finds_keys_by_their_index() -> None:
    """The index of what is asked again begins like the primary key, and looks as good to a planner that knows nothing:
    each key of a flood read the rows of all others."""
    require(postgres.missing())
    of = Subscription(environment="e", topic="ORDERS", group="billing")
    seen = [rejected(number) for number in range(ROWS)]
    with PostgresServer(options={"autovacuum": "off"}) as server:
        url = server.create_database("ledger")
        schema.upgrade(url, "ledger")
        with disposed(open_engine(url)) as engine:
            candidates = SqlCandidates(LedgerDatabase(engine))
            candidates.record(Shard(subscription=of, number=0), seen)
            read = rows_read(engine, "reconciler_candidate")
            asked = [one.unique_key for one in seen[:ASKED]]
            assert len(candidates.of_keys(of, asked)) == ASKED
            assert max(read) <= ASKED
            read.clear()
            candidates.ask_later(of, asked, seconds=0)
            candidates.take_back(Shard(subscription=of, number=1), asked)
    assert max(read) <= 4 * ASKED


def rejected(number: int) -> VerdictEntry:
    return VerdictEntry(
        unique_key=key(number),
        verdict=Verdict.REJECTED,
        evidence={},
        first_seen_ms=1,
        state=CandidateState.SETTLED,
        wait_seconds=0.0,
        ask_again_seconds=0.0,
    )


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
    with begun(urls[tree]) as connection:
        found = probe(connection, query, column, keys).all()
        rows_read = int(connection.execute(_READ, {"name": column.table.name}).scalar_one())
        assert {row.unique_key for row in found} == set(keys[: ASKED // 2])
        assert rows_read == len(found)
        # The plain list, for comparison: otherwise this test would show nothing.
        assert len(connection.execute(query.where(column.in_(keys))).all()) == len(found)
        assert int(connection.execute(_READ, {"name": column.table.name}).scalar_one()) - rows_read >= ROWS


def test_the_proof_beside_the_answer_reads_no_other_rows(urls: dict[str, str]) -> None:
    keys = [key(number) for number in range(ROWS - ASKED // 2, ROWS + ASKED // 2)]
    query = sa.select(inbox).where(inbox.c.consumer_group == "billing")
    with disposed(open_engine(urls["inbox"])) as engine:
        read = rows_read(engine, inbox.name)
        role, found = WitnessDatabase(engine, inbox).probe(query, inbox.c.unique_key, keys)
    assert role.is_primary
    assert {row.unique_key for row in found} == set(keys[: ASKED // 2])
    assert max(read) == len(found)


def rows_read(engine: sa.Engine, table: str) -> list[int]:
    """Filled with how many of the table's rows each statement of the engine's connections has read."""
    read: list[int] = []

    @sa.event.listens_for(engine, "after_cursor_execute")
    def look(connection: sa.Connection, *_: object) -> None:
        with closing(connection.connection.cursor()) as cursor:
            cursor.execute(_READ.text.replace(":name", f"'{table}'"))
            (rows,) = cursor.fetchone() or (0,)
        read.append(int(rows))

    return read


def test_a_sweep_reads_no_rows_that_are_to_be_kept_or_left_alone(urls: dict[str, str]) -> None:
    """Each sweep read all finished rows of a week, and all that wait for their effects."""
    with closing(SqlOutbox(urls["outbox"])) as rows:
        read = rows_read(rows.engine, "reconciler_outbox")
        assert rows.delete_finished("orders", older_than_seconds=3_600, limit=500) == 0
        assert rows.announced("orders", older_than_seconds=3_600, limit=500, after=None).facts == ()
        assert rows.unannounced("orders", older_than_seconds=60, limit=500).facts == ()
    assert read
    assert max(read) <= 1


def test_rounds_and_retention_read_no_verdicts_that_are_not_due(urls: dict[str, str]) -> None:
    of = Subscription(environment="e", topic="ORDERS", group="billing")
    later = now_ms("postgresql") + 3_600_000
    change(urls["ledger"], {"state": "OPEN", "next_at_ms": later, "updated_at_ms": 0})
    with disposed(open_engine(urls["ledger"])) as engine:
        read = rows_read(engine, "reconciler_candidate")
        assert SqlCandidates(LedgerDatabase(engine)).open_due(of, shards=range(16), limit=500) == []
    assert max(read) <= 500, "as many that wait for long: the clock may have been set back"
    change(urls["ledger"], {"state": "SETTLED"})
    with disposed(open_engine(urls["ledger"])) as engine:
        read = rows_read(engine, "reconciler_candidate")
        assert SqlRetention(LedgerDatabase(engine), keep_days=1).delete_old("e").candidates == 0
    assert read
    assert max(read) <= 1


def test_a_repair_pass_reads_no_repairs_that_are_finished(urls: dict[str, str]) -> None:
    """Each pass of each topic read all repairs of ninety days."""
    with disposed(open_engine(urls["ledger"])) as engine:
        read = rows_read(engine, "reconciler_repair")
        assert SqlRepairs(LedgerDatabase(engine)).claimable("e", "ORDERS", scope="*", limit=500) == []
    assert read
    assert max(read) <= 1


def test_what_is_asked_again_is_found_and_put_off_without_reading_other_rows(urls: dict[str, str]) -> None:
    """A million forged keys wait for their time, or are due already: neither may cost the rounds anything."""
    of = Subscription(environment="e", topic="ORDERS", group="billing")
    later = now_ms("postgresql") + 3_600_000
    change(urls["ledger"], {"state": "SETTLED", "verdict": "REJECTED", "next_at_ms": 0, "ask_again_at_ms": later})
    with disposed(open_engine(urls["ledger"])) as engine:
        candidates, read = SqlCandidates(LedgerDatabase(engine)), rows_read(engine, "reconciler_candidate")
        assert candidates.to_ask_again(of, limit=ASKED) == []
        assert candidates.unreviewed_rows(of, most=ASKED).count == 0
        assert max(read) <= 1
        change(urls["ledger"], {"ask_again_at_ms": 1})
        assert candidates.open_due(of, shards=range(16), limit=ASKED) == []
        assert max(read) <= 1
        read.clear()
        due = candidates.to_ask_again(of, limit=ASKED)
        candidates.ask_later(of, [row.unique_key for row in due], seconds=60)
    assert len(due) == ASKED
    assert max(read) <= 2 * ASKED


def change(url: str, values: dict[str, Any]) -> None:
    with begun(url) as connection:
        connection.execute(sa.update(candidate).values(values))
        connection.execute(sa.text("ANALYZE reconciler_candidate"))
