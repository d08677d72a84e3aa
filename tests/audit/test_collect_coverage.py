"""What databases and exports hold beside what was asked for is counted, once, and recorded in the evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect import coverage
from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.sources import Source, Sources
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.engines.job import judge_here
from reconciler.sql import tables
from tests.audit.audited_databases import Databases, quiet
from tests.audit.delta_exports import LEDGER_TABLES, rows_of
from tests.engines import disposed

#: With the audit's other long tests.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RowsOf = dict[tuple[str, str, str], int]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=200, seed=31, accidents={"LOST": 2, "REPAIRED": 2}, topics=2), folder)
    return folder


def add_others(databases: Databases) -> RowsOf:
    """Rows of others in and around the window; returns those of the window."""
    start_ms, end_ms = (databases.asked["window"][name] for name in ("start_ms", "end_ms"))
    asked = databases.asked["subscriptions"][0]
    topic, group, producer = asked["topic"], asked["group"], asked["producer_groups"][0]
    keys = (f"{number:032X}" for number in range(1, 1_000))
    times = (start_ms - 1, start_ms, (start_ms + end_ms) // 2, end_ms - 1, end_ms)

    def rows(time: str, **names: Any) -> list[dict[str, Any]]:
        return [{**names, "unique_key": next(keys), time: at_ms} for at_ms in times]

    def outbox(topic: str, group: str) -> list[dict[str, Any]]:
        return rows("created_at_ms", topic=topic, producer_group=group, state="ANNOUNCED")

    def inbox(topic: str, group: str) -> list[dict[str, Any]]:
        return rows("applied_at_ms", topic=topic, consumer_group=group, source="consumer")

    insert(databases.outbox_url, tables.outbox, outbox("NOBODYS", producer) + outbox(topic, "strangers"))
    insert(databases.inbox_url, tables.inbox, inbox("NOBODYS", group) + inbox(topic, "aaa") + inbox(topic, "zzz"))
    one = {"shard": 0, "state": "OPEN", "verdict": "LOST_CONFIRM", "evidence": "{}", "attempts": 1, "next_at_ms": 0}
    of = {"environment": databases.asked["environment"], "topic": topic}
    candidates = rows("first_seen_ms", **one, **of, consumer_group="aaa", updated_at_ms=end_ms)
    candidates += rows("first_seen_ms", **one, **{**of, "environment": "x"}, consumer_group="b", updated_at_ms=end_ms)
    insert(databases.ledger_url, tables.candidate, candidates)
    one = {"state": "OPEN", "rung": "end", "attempts": 0, "next_at_ms": 0, "environment": of["environment"]}
    repairs = rows("created_at_ms", **one, topic="NOBODYS", scope="*") + rows(
        "created_at_ms", **one, topic=topic, scope="aaa"
    )
    insert(databases.ledger_url, tables.repair, repairs)
    return {
        ("outbox", "NOBODYS", producer): 3,
        ("outbox", topic, "strangers"): 3,
        ("inbox", "NOBODYS", group): 3,
        ("inbox", topic, "aaa"): 3,
        ("inbox", topic, "zzz"): 3,
        ("candidate", topic, "aaa"): 3,
        ("repair", "NOBODYS", "*"): 3,
        # Collected with its topic's other repairs, and then not judged.
        ("repair", topic, "aaa"): 3,
    }


def insert(url: str, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    with disposed(sa.create_engine(url)) as engine, engine.begin() as connection:
        connection.execute(sa.insert(table), rows)


def told(databases: Databases, folder: Path, sources: Sources | None = None) -> RowsOf:
    """Collects and judges."""
    folder.mkdir()
    collect(databases.request(sources), folder, one_by_one, quiet)
    judged = judge_here(folder)
    assert judged.not_judged.sources_counted
    return {(one.table, one.topic, one.group): one.rows for one in judged.not_judged.listed}


def test_rows_of_a_database_that_nobody_asked_for_are_told_and_change_no_class(
    databases: Databases, generated: Path, tmp_path: Path
) -> None:
    others = add_others(databases)
    assert told(databases, tmp_path / "evidence") == others
    assert judge_here(tmp_path / "evidence").classes == judge_here(generated).classes


def test_nothing_is_told_where_everything_was_asked_for(sqlite: Databases, tmp_path: Path) -> None:
    assert told(sqlite, tmp_path / "evidence") == {}


def test_an_inbox_of_more_groups_than_are_asked_one_by_one_is_counted_to_its_end(
    sqlite: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = add_others(sqlite)
    monkeypatch.setattr(coverage, "GROUPS_MAX", 1)
    assert told(sqlite, tmp_path / "evidence") == others


def test_exports_are_counted_like_databases(sqlite: Databases, tmp_path: Path) -> None:
    others = add_others(sqlite)

    def export(url: str, names: tuple[str, ...], option: str) -> Source:
        for name in names:
            (tmp_path / option / name).mkdir(parents=True)
            rows = rows_of(url, name)
            for number in range(2):
                pq.write_table(pa.Table.from_pylist(rows[number::2]), tmp_path / option / name / f"{number}.parquet")
        return Source(kind="parquet", address=str(tmp_path / option), option=option)

    sources = sqlite.sources()
    outbox = export(sqlite.outbox_url, ("reconciler_outbox",), "--outbox")
    given = replace(
        sources,
        outboxes=tuple((group, outbox) for group, _ in sources.outboxes),
        inboxes=dict.fromkeys(sources.inboxes, (export(sqlite.inbox_url, ("reconciler_inbox",), "--inbox"),)),
        ledger=export(sqlite.ledger_url, LEDGER_TABLES, "--ledger"),
    )
    assert told(sqlite, tmp_path / "evidence", given) == others


def test_subscriptions_that_were_left_out_are_told(sqlite: Databases, tmp_path: Path) -> None:
    """--only: their databases are given, and this audit says nothing about them."""
    asked = sqlite.asked["subscriptions"]
    left_out = asked.pop()
    assert asked
    given = load_all_sources(sqlite, left_out)
    names = told(sqlite, tmp_path / "evidence", given)
    assert names["inbox", left_out["topic"], left_out["group"]] > 0
    assert {topic for table, topic, _ in names if table == "outbox"} == {left_out["topic"]}


def load_all_sources(databases: Databases, left_out: dict[str, Any]) -> Sources:
    sources = databases.sources()
    inbox = next(iter(sources.inboxes.values()))
    return replace(sources, inboxes={**sources.inboxes, (left_out["topic"], left_out["group"]): inbox})


def test_the_count_is_part_of_the_evidence(sqlite: Databases, tmp_path: Path) -> None:
    add_others(sqlite)
    told(sqlite, tmp_path / "evidence")
    counted = json.loads((tmp_path / "evidence" / "evidence.json").read_text())["not_asked"]
    assert counted["omitted_rows"] == 0
    assert counted["listed"] == sorted(
        counted["listed"], key=lambda one: (-one["rows"], one["table"], one["topic"], one["group"])
    )
    assert sum(one["rows"] for one in counted["listed"]) == 7 * 3
