"""The questions of docs/how-to/audit-tables.md, each asked of three days whose answers are known. The last has none."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from reconciler.audit.judged_tables.schema import COLUMNS, RUNS
from reconciler.contract.unique_key import key_of
from tests.audit.judged_tables import DAY_MS, audit, day
from tests.audit.small_evidence import GROUP, START_MS, TOPIC, SmallEvidence, subscription
from tests.page_blocks import DOCS, blocks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

PAGE = "how-to/audit-tables.md"
VIEWS, VIEWS_OF_SPARK, *QUESTIONS = [
    block.text for block in blocks_of(PAGE, (DOCS / PAGE).read_text()) if block.language == "sql"
]
ON_PAGE = "/var/lib/audits/tables"
#: Number of days with an answer.
ANSWERED = 2
Answers = list[tuple[Any, ...]]


def at(ms: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days with an answer; the third day's databases were read too early, so its lost message is not final."""
    folder = tmp_path_factory.mktemp("questions")
    for number in range(3):
        one = day(number)
        if number == 2:
            one.collected_at_ms = one.as_of_ms = one.end_ms
        audit(one.write(folder / f"day-{number}"), folder / "tables")
    return folder / "tables"


@pytest.fixture(scope="module")
def asked(tables: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(VIEWS.replace(ON_PAGE, str(tables)))
        yield connection


def answers(tables: Path) -> list[Answers]:
    days = [at(START_MS + number * DAY_MS).date() for number in range(ANSWERED)]
    mine = (TOPIC, GROUP)
    lost = [START_MS + number * DAY_MS + 10 * 3_600_000 for number in range(ANSWERED)]
    starts = [at(START_MS + number * DAY_MS) for number in range(3)]
    repaired = at(START_MS + 11 * 3_600_000)
    statements = [(tables.parent / f"day-{n}-out/statement/{TOPIC}--{GROUP}.json").read_bytes() for n in range(3)]
    evidence = [(tables.parent / f"day-{n}/evidence.json").read_bytes() for n in range(3)]
    digests = [[hashlib.sha256(one).hexdigest() for one in of_days] for of_days in (statements, evidence)]
    verdicts = ("violations", "violations", "no answer")
    keys = [key_of(bytes([number, 10]) * 8) for number in range(ANSWERED)]
    return [
        [(one, *mine, 1, 1, pytest.approx(1_000_000 / 12)) for one in days],
        [(*mine, 6_000, 95_000, 95_000)],
        [("LOST_CONFIRM", ANSWERED)],
        [(*mine, f"order-{n}-10", keys[n], at(when), "LOST", "PARKED") for n, when in enumerate(lost)],
        [(starts[2], at(START_MS + 3 * DAY_MS), *mine, "window")],
        [(at(when), *mine, "LOST", 1) for when in lost],
        [(one, *mine, pytest.approx(500 / 12)) for one in days],
        [(*mine, ANSWERED, 90_000)],
        [(starts[0], *mine, "REPAIRED", repaired, at(repaired.timestamp() * 1000 + 95_000), "LOST_CONFIRM", True)],
        [(starts[n], *mine, verdicts[n], digests[0][n], None, digests[1][n], None) for n in range(3)],
    ]


def test_the_page_asks_ten_questions() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_each_question_has_the_answer_that_was_planted(
    asked: duckdb.DuckDBPyConnection, tables: Path, number: int
) -> None:
    expected = answers(tables)[number]
    found = [tuple(row)[: len(expected[0])] for row in asked.execute(QUESTIONS[number]).fetchall()]
    assert found == expected


def test_no_view_shows_rows_of_a_window_without_an_answer(asked: duckdb.DuckDBPyConnection, tables: Path) -> None:
    starts = {at(START_MS + number * DAY_MS) for number in range(ANSWERED)}
    unanswered = at(START_MS + ANSWERED * DAY_MS)
    for table in COLUMNS:
        shown = {row[0] for row in asked.execute(f"SELECT DISTINCT window_start FROM {table}").fetchall()}
        assert shown == (starts | {unanswered} if table == RUNS else starts)
        rows = f"read_parquet('{tables}/{table}/*.parquet', union_by_name = true)"
        assert asked.execute(f"SELECT * FROM {rows} WHERE window_start = $1", [unanswered]).fetchall()


def test_views_show_columns_in_the_order_of_the_reference(asked: duckdb.DuckDBPyConnection) -> None:
    for table, columns in COLUMNS.items():
        assert [column[0] for column in asked.execute(f"FROM {table}").description] == [one.name for one in columns]


def test_an_order_is_found_by_what_the_business_calls_it(asked: duckdb.DuckDBPyConnection) -> None:
    in_groups = QUESTIONS[8]
    by_order = re.search(r"`(key IN \(SELECT .*?\))`", (DOCS / PAGE).read_text())
    assert by_order
    asked.execute("CREATE TEMPORARY TABLE reconciler_outbox (unique_key VARCHAR, business_id VARCHAR)")
    asked.execute("INSERT INTO reconciler_outbox VALUES ($1, 'order-0-11')", [key_of(bytes([0, 11]) * 8)])
    found = asked.execute(re.sub(r"key = '\w+'", lambda _: by_order[1], in_groups)).fetchall()
    assert found == asked.execute(in_groups).fetchall()
    assert [row[3] for row in found] == ["REPAIRED"]


def test_a_group_without_a_verdict_has_the_cause_of_the_keys_other_group(tmp_path: Path) -> None:
    """A repair for all groups reaches a group that the ledger has never judged."""
    one = day(0)
    other = "other"
    one.subscriptions.append(subscription(group=other, effects=False))
    for message in range(12):
        key = bytes([0, message]) * 8
        applied_at_ms = START_MS + message * DAY_MS // 24 + 100_000
        one.add("inbox", key, consumer_group=other, applied_at_ms=applied_at_ms)
        if message == 11:
            one.add("repair", key, scope="*", created_at_ms=applied_at_ms - 10_000)
    audit(one.write(tmp_path / "day"), tmp_path / "tables")
    with duckdb.connect() as connection:
        connection.execute(VIEWS.replace(ON_PAGE, str(tmp_path / "tables")))
        causes = connection.execute("SELECT cause FROM audit_keys WHERE repaired ORDER BY consumer_group").fetchall()
        assert sorted(causes, key=str) == [("LOST_CONFIRM",), (None,)]
        assert connection.execute(QUESTIONS[2]).fetchall() == [("LOST_CONFIRM", 2)]


def test_a_commit_that_the_reconciler_never_saw_counts_as_lost(tmp_path: Path) -> None:
    one = SmallEvidence(subscriptions=[subscription(effects=False)])
    one.story(bytes([1]) * 16)
    unseen = bytes([2]) * 16
    one.add("outbox", unseen, created_at_ms=START_MS + 5_000, business_id="order-2")
    audit(one.write(tmp_path / "day"), tmp_path / "tables")
    with duckdb.connect() as connection:
        connection.execute(VIEWS.replace(ON_PAGE, str(tmp_path / "tables")))
        ((_, _, _, lost, _, of_a_million),) = connection.execute(QUESTIONS[0]).fetchall()
        assert (lost, of_a_million) == (1, 500_000)
        (found,) = connection.execute(QUESTIONS[3]).fetchall()
        assert found[2:4] == ("order-2", key_of(unseen))
        assert "NOT_ANNOUNCED_NOT_FOUND" in found


def test_days_are_those_of_the_zone_that_the_session_names(asked: duckdb.DuckDBPyConnection) -> None:
    """The windows are days in UTC, whose last eight hours are the next day in Shanghai, and whose first is in Honolulu
    the day before."""
    days = [at(START_MS + number * DAY_MS).date() for number in range(3)]
    before = [day - datetime.timedelta(days=1) for day in days]
    zone = VIEWS.splitlines()[0]
    assert zone == "SET TimeZone = 'UTC';"
    for name, expected in (("Asia/Shanghai", days), ("Pacific/Honolulu", before), ("UTC", days)):
        asked.execute(zone.replace("UTC", name))
        found = asked.execute("SELECT CAST(window_start AS DATE) FROM audit_runs ORDER BY window_start").fetchall()
        assert [row[0] for row in found] == expected


@pytest.mark.nightly
@pytest.mark.spark
def test_spark_gives_the_same_answers(spark: SparkSession, asked: duckdb.DuckDBPyConnection, tables: Path) -> None:
    for statement in VIEWS_OF_SPARK.replace(ON_PAGE, str(tables)).split(";"):
        if statement.strip():
            spark.sql(statement)
    try:
        for question in QUESTIONS:
            here = asked.execute(question)
            names = [column[0] for column in here.description]
            told = [dict(zip(names, row, strict=True)) for row in here.fetchall()]
            there = [row.asDict() for row in spark.sql(question).collect()]
            assert [_plain(row) for row in there] == [_plain(row) for row in told]
    finally:
        for table in COLUMNS:
            spark.catalog.dropTempView(table)
        for setting in ("spark.sql.session.timeZone", "spark.sql.parquet.mergeSchema"):
            spark.conf.unset(setting)


def _plain(row: dict[str, Any]) -> dict[str, str]:
    """Numbers to six digits and instants as seconds: engines have types of their own."""
    return {
        name: f"{value.timestamp()}"
        if isinstance(value, datetime.datetime)
        else f"{float(value):.6g}"
        if hasattr(value, "__float__") and not isinstance(value, bool)
        else f"{value}"
        for name, value in row.items()
    }
