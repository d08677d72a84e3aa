"""A page of a listing costs what it shows, wherever in a grown table it lies: a walk of an index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, JobState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.ledger import paging
from reconciler.ledger.floors import SqlFloors
from reconciler.ledger.reports import SqlReports
from reconciler.ledger.rests import SqlRests
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import candidate, job, operator_action, outage, quarantine, repair, round_row
from reconciler.telling.ports.paging import LedgerFilter, Page, Position, all_rows
from tests.services import mariadb, postgres
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.requirements import require

pytestmark = [pytest.mark.sql, pytest.mark.slow, pytest.mark.xdist_group("grown-pages")]  # filled once

ROWS, LIMIT, LOOKED_AT = 20_000, 10, 1_000
#: Rows of one millisecond: a round sees as many keys first.
AT_ONCE = 400
MIDDLE_MS = ROWS // AT_ONCE // 2
#: n -> one row in a thousand is what somebody looks for.
RARE = "CASE WHEN n % 1000 = 7 THEN {0} ELSE {1} END"
TOPIC, BY = RARE.format("'RARE'", "'ORDERS'"), RARE.format("'rare'", "'anna'")
#: Table -> column -> its value, of the number n, KEY and TIME.
FILLED = {
    candidate: {
        "topic": TOPIC,
        "consumer_group": "'billing'",
        "unique_key": "KEY",
        "state": RARE.format("'QUARANTINED'", "'SETTLED'"),
        "verdict": "'CONSUMED'",
        "loss_verdict": RARE.format("'LOST_CONFIRM'", "NULL"),
        "evidence": "'{}'",
        "first_seen_ms": "TIME",
    },
    repair: {
        "topic": TOPIC,
        "scope": "'*'",
        "unique_key": "KEY",
        "state": RARE.format("'FAILED'", "'DONE'"),
        "rung": "'end'",
        "created_at_ms": "TIME",
    },
    round_row: {
        "topic": TOPIC,
        "consumer_group": "'billing'",
        "shard": "n % 64",
        "epoch": "'e:1'",
        "generation": "n",
        "offsets": "'{}'",
        "stored_at_ms": "FEW",
    },
    outage: {"started_at_ms": "n", "reason": "'AWAY'", "noticed_by": "'b'", "closed_at_ms": "n"},
    quarantine: {
        "unique_key_topic": "'UK'",
        "broker": "'broker-a'",
        "queue_id": "n % 8",
        "queue_offset": "n",
        "reason": "'SHAPE'",
        "detail": "''",
        "body": "''",
        "seen_at_ms": "TIME",
    },
    operator_action: {
        "action_id": "KEY",
        "by": BY,
        "command": "'repair'",
        "topic": "'ORDERS'",
        "unique_key": "KEY",
        "detail": "''",
        "started_at_ms": "FEW",
    },
    job: {
        "job_id": "KEY",
        "by": BY,
        "kind": "'REPAIR'",
        "request": "'{}'",
        "state": RARE.format("'FAILED'", "'DONE'"),
        "created_at_ms": "FEW",
    },
}
LISTED = [
    ("candidates", LedgerFilter()),
    ("candidates", LedgerFilter(candidate_state=CandidateState.SETTLED)),
    ("candidates", LedgerFilter(candidate_state=CandidateState.QUARANTINED)),
    ("candidates", LedgerFilter(is_loss=True)),
    ("candidates", LedgerFilter(topic="RARE", verdict=Verdict.CONSUMED, is_loss=True)),
    ("candidates", LedgerFilter(topic="RARE", group="billing")),
    ("candidates", LedgerFilter(verdict=Verdict.PARKED)),
    ("candidates", LedgerFilter(since_ms=10, before_ms=20)),
    ("candidates", LedgerFilter(verdict=Verdict.PARKED, before_ms=MIDDLE_MS)),
    ("candidates", LedgerFilter(unique_keys=tuple(f"{n:032X}" for n in range(1, 100)))),
    ("repairs", LedgerFilter()),
    ("repairs", LedgerFilter(repair_state=RepairState.FAILED)),
    ("repairs", LedgerFilter(topic="RARE")),
    ("rounds", LedgerFilter()),
    ("rounds", LedgerFilter(topic="RARE")),
    ("outages", LedgerFilter()),
    ("quarantined", LedgerFilter()),
    ("actions", LedgerFilter()),
    ("actions", LedgerFilter(by="rare")),
    ("jobs", LedgerFilter()),
    ("jobs", LedgerFilter(job_state=JobState.FAILED)),
    ("jobs", LedgerFilter(by="rare")),
]


@pytest.fixture(scope="module", params=["postgres", pytest.param("mariadb", marks=pytest.mark.nightly)])
def ledger(request: pytest.FixtureRequest) -> Iterator[SqlLedger]:
    require((postgres if request.param == "postgres" else mariadb).missing())
    server: Any = PostgresServer(options={"autovacuum": "off"}) if request.param == "postgres" else MariaDBServer()
    with server:
        url = server.create_database("ledger")
        schema.upgrade(url, "ledger")
        engine = open_engine(url)
        fill(engine)
        yield SqlLedger(engine)
        engine.dispose()


def fill(engine: sa.Engine) -> None:
    if engine.dialect.name == "postgresql":
        key, divided, analyze = "upper(lpad(to_hex(n), 32, '0'))", "/", "ANALYZE"
        numbers = f"generate_series(1, {ROWS}) AS n"
    else:
        key, divided, analyze = "lpad(hex(n), 32, '0')", "DIV", "ANALYZE TABLE"
        numbers = f"(SELECT seq AS n FROM seq_1_to_{ROWS}) AS numbers"
    quoted = engine.dialect.identifier_preparer.quote
    with engine.begin() as connection:
        for table, given in FILLED.items():
            zeros = {c.name: "0" for c in table.c if not c.nullable}
            values = zeros | {"environment": "'e'"} | given
            names = ", ".join(map(quoted, values))
            made = ", ".join(values.values()).replace("KEY", key)
            made = made.replace("TIME", f"n {divided} {AT_ONCE}").replace("FEW", f"n {divided} 4")
            connection.exec_driver_sql(f"INSERT INTO {table} ({names}) SELECT {made} FROM {numbers}".replace("%", "%%"))
        for table in FILLED:
            connection.exec_driver_sql(f"{analyze} {table}")


MEASURED = "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF"


def plans(ledger: SqlLedger, read: Callable[[], object], *, how: str = MEASURED) -> list[str]:
    """How the database goes about each statement of what is read."""
    engine, statements = ledger.jobs._database.engine, []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        statements.append((statement, parameters))

    read()
    sa.event.remove(engine, "before_cursor_execute", note)
    explain = f"EXPLAIN ({how})" if engine.dialect.name == "postgresql" else "EXPLAIN"
    with engine.connect() as connection:
        selects = [(text, values) for text, values in statements if text.startswith(("SELECT", "WITH"))]
        return [
            "\n".join(" | ".join(map(str, row)) for row in connection.exec_driver_sql(f"{explain} {text}", values))
            for text, values in selects
        ]


#: A plan that reads the newest row by its key, or none.
_SEEKS = "Backward using reconciler_round_pkey|PRIMARY|optimized away|no matching|Impossible WHERE"


def plans_of_rounds(ledger: SqlLedger, read: Callable[[], object]) -> list[str]:
    """Without that of rows of rest: a table that has one row a subscription."""
    found = plans(ledger, read)
    of_rounds = [plan for plan in found if "reconciler_subscription" not in plan]
    assert len(of_rounds) >= len(found) - 1
    return of_rounds


def listing(
    ledger: SqlLedger, name: str, only: LedgerFilter, *, after: Position | None, limit: int = LIMIT
) -> Page[Any]:
    pages: Any = ledger.jobs.page if name == "jobs" else getattr(ledger.reports, name)
    found: Page[Any] = pages("e", only=only, limit=limit, after=after)
    return found


@pytest.mark.parametrize(("name", "only"), LISTED)
def test_a_page_reads_or_sorts_a_whole_table(
    ledger: SqlLedger, name: str, only: LedgerFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "LOOKED_AT_MAX", LOOKED_AT)
    is_indexed = not (only.topic or only.verdict or only.by)
    deep = listing(ledger, name, only, after=None, limit=LOOKED_AT).end
    for after in (None, deep) if deep is not None else (None,):
        for plan in plans(ledger, partial(listing, ledger, name, only, after=after)):
            assert "Seq Scan" not in plan, plan
            if is_indexed:  # otherwise what the page looks at may be sorted: a bounded number of rows
                assert not re.search(r"(?<!Incremental )Sort \(|filesort", plan), plan
            assert "| ALL |" not in plan, plan
            read = [int(rows) for rows in re.findall(r"(?:actual rows=|Removed by [^:]*: )(\d+)", plan)]
            assert max(read, default=0) <= LOOKED_AT + AT_ONCE, plan


def test_a_stretch_in_the_middle_of_a_walk_looks_like_half_of_the_table_to_the_planner(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It then reads a table of ten million rows from end to end."""
    if ledger.jobs._database.engine.dialect.name != "postgresql":
        return  # the others tell no estimate of a range
    monkeypatch.setattr(paging, "LOOKED_AT_MAX", LOOKED_AT)
    only = LedgerFilter(verdict=Verdict.CONSUMED, before_ms=MIDDLE_MS)
    after = listing(ledger, "candidates", only, after=None).end
    for position in (None, after):
        *_, plan = plans(ledger, partial(listing, ledger, "candidates", only, after=position), how="COSTS ON")
        (expected,) = (int(rows) for rows in re.findall(r"Scan.* rows=(\d+)", plan))
        assert expected <= LOOKED_AT, plan


def test_the_newest_round_of_each_shard_costs_more_than_a_seek(ledger: SqlLedger) -> None:
    of = Subscription(environment="e", topic="ORDERS", group="billing")
    found = ledger.reports.last_rounds(of)
    assert [one.done.shard.number for one in found] == list(range(64))
    assert max(one.done.generation for one in found) == ROWS
    for plan in plans_of_rounds(ledger, partial(ledger.reports.last_rounds, of)):
        assert re.search(_SEEKS, plan, re.I), plan
        assert not re.search("Sort|filesort|index_merge", plan), plan
        read = [int(rows) for rows in re.findall(r"(?:actual rows=|Removed by [^:]*: )(\d+)", plan)]
        assert max(read, default=0) <= 1, plan


def test_the_newest_rounds_of_all_cost_more_than_a_seek_each(ledger: SqlLedger) -> None:
    of = [Subscription(environment="e", topic=topic, group="billing") for topic in ("ORDERS", "RARE")]
    found = ledger.reports.last_rounds_of(of)
    assert found == {one: ledger.reports.last_rounds(one) for one in of}
    assert len(found[of[0]]) == 64
    for plan in plans_of_rounds(ledger, partial(ledger.reports.last_rounds_of, of)):
        assert re.search(_SEEKS, plan, re.I), plan
        assert not re.search("Sort|filesort|index_merge", plan), plan
        walked = len(found[of[0]]) + len(found[of[1]])
        read = [int(rows) for rows in re.findall(r"(?:actual rows=|Removed by [^:]*: )(\d+)", plan)]
        assert max(read, default=0) <= walked, plan


def test_shards_whose_rounds_are_new_cost_more_than_these_rounds(ledger: SqlLedger) -> None:
    ask = partial(ledger.reports.shards_since, "e", since_ms=ROWS // 4 - 100)
    assert len(ask()) == 64
    for plan in plans_of_rounds(ledger, ask):
        assert re.search(r"(using|on) ix_\w+_stored\w* |\| ix_\w+_stored\w* \| \d", plan), plan
        read = [int(rows) for rows in re.findall(r"(?:actual rows=|Removed by [^:]*: )(\d+)", plan)]
        assert max(read, default=0) <= 400, plan


def test_a_chart_reads_what_is_older_than_it(ledger: SqlLedger) -> None:
    """Every row of the tables is."""
    draw = partial(ledger.activities.of_hours, "e", hours=72, width_ms=3_600_000)
    drawn = plans(ledger, draw)
    assert len(drawn) == 5, "the time, and four statements"
    for plan in drawn:
        assert "Seq Scan" not in plan, plan
        assert not re.search(r"\| reconciler_\w+ \| ALL \|", plan), plan
        assert sum(int(rows) for rows in re.findall(r"actual rows=(\d+)", plan.partition("Hash Join")[0])) <= 1, plan


def test_a_count_of_what_is_many_reads_all_of_it(ledger: SqlLedger) -> None:
    database, rests = ledger.database, SqlRests(ledger.database)
    reports = SqlReports(database, SqlFloors(database), ledger.actions, ledger.holds, rests, counted_max=LOOKED_AT)
    assert {(v.subscription.topic, v.state, v.loss_verdict): v.count for v in reports.verdict_counts("e")} == {
        ("RARE", CandidateState.QUARANTINED, Verdict.LOST_CONFIRM): ROWS // 1_000,
        ("ORDERS", CandidateState.SETTLED, None): LOOKED_AT + 1,
    }
    assert {(r.topic, r.state): (r.count, r.attempted) for r in reports.repair_counts("e")} == {
        ("RARE", RepairState.FAILED): (ROWS // 1_000, 0),
        ("ORDERS", RepairState.DONE): (LOOKED_AT + 1, 0),
    }
    for count in (reports.verdict_counts, reports.repair_counts):
        for plan in plans(ledger, partial(count, "e")):
            looked_at = [line for line in plan.splitlines() if re.search(r"Scan|\| reconciler_", line)]
            assert looked_at, plan
            taken = re.compile(r"using ix_reconciler_\w+_count on|\| ix_reconciler_\w+_count \| \d")
            assert all(taken.search(line) and "filesort" not in line for line in looked_at), plan
            read = [int(rows) for rows in re.findall(r"Scan.*actual rows=(\d+)", plan)]
            assert max(read, default=0) <= LOOKED_AT + 1, plan


@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("candidates", LedgerFilter(topic="RARE")),
        ("candidates", LedgerFilter(topic="RARE", candidate_state=CandidateState.QUARANTINED)),
        ("candidates", LedgerFilter(is_loss=True, candidate_state=CandidateState.QUARANTINED)),
        ("repairs", LedgerFilter(topic="RARE")),
        ("rounds", LedgerFilter(topic="RARE")),
        ("actions", LedgerFilter(by="rare")),
        ("jobs", LedgerFilter(by="rare")),
    ],
)
def test_rows_that_are_rare_are_all_found_by_pages_that_look_at_a_bounded_number_of_rows(
    ledger: SqlLedger, name: str, only: LedgerFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "LOOKED_AT_MAX", 700)
    whole = list(all_rows(partial(listing, ledger, name, only), limit=ROWS))
    assert len(whole) == ROWS // 1_000
    assert whole == list(
        all_rows(lambda *, limit, after: listing(ledger, name, only, after=after, limit=3), limit=ROWS)
    )
