"""Business effects are counted by key, and judged only where something places them in the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect import lookups
from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.lookups import PART, PrefixLookups, keys_of_ranges
from reconciler.audit.collect.sources import parse_sources
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.engines.job import judge_here
from reconciler.audit.result.values import JudgedWindow
from reconciler.sql import tables
from tests.audit.audited_databases import Databases, quiet
from tests.engines import disposed

#: With the audit's other long tests.
pytestmark = pytest.mark.spark

DOUBLED = 4
DAY_MS = 86_400_000
WHERE = "FROM payments WHERE topic = '{topic}' AND consumer_group = '{group}'"
COUNTED = f"SELECT message_key, count(*) {WHERE} GROUP BY message_key"
#: The business table of these tests has no time, so any condition will do.
DATED = f"SELECT message_key, count(*) {WHERE} AND :start_ms < :end_ms GROUP BY message_key"


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=200, seed=11, accidents={"DOUBLE_EFFECT": DOUBLED}, topics=1), folder)
    return folder


@dataclass
class Audit:
    databases: Databases
    folder: Path

    def judged(self, effects: str) -> JudgedWindow:
        """`effects`: a query, or the URL of an export."""
        self.folder.mkdir()
        options = [
            f"{s['topic']}/{s['group']}="
            + (effects if "://" in effects or effects.startswith("parquet:") else self._query(effects, s))
            for s in self.databases.asked["subscriptions"]
        ]
        sources = replace(self.databases.sources(), effects=parse_sources(effects=options).effects)
        collect(self.databases.request(sources), self.folder, one_by_one, quiet)
        return judge_here(self.folder)

    def _query(self, query: str, asked: dict[str, str]) -> str:
        return f"{self.databases.inbox_url}#{query.format(**asked)}"


@pytest.fixture
def audit(sqlite: Databases, tmp_path: Path) -> Audit:
    return Audit(sqlite, tmp_path / "evidence")


def test_a_double_effect_is_found_where_each_effect_is_a_row_of_its_own(audit: Audit) -> None:
    assert audit.judged(f"SELECT message_key {WHERE}").classes["DOUBLE_EFFECT"] == DOUBLED * groups(audit)


def test_look_ups_open_no_small_file_of_a_range_twice(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several questions are asked about each: opening files was half of what a small audit cost."""
    opened: list[str] = []
    read = lookups._file

    def counted(folder: str, path: str, groups: Sequence[int] | None = None) -> pa.Table:
        opened.append(path)
        return read(folder, path, groups)

    monkeypatch.setattr(lookups, "_file", counted)
    audit.judged(COUNTED)
    ranges = [path for path in opened if PART not in path]
    assert len(ranges) == len(set(ranges)) > 0


def test_an_effect_in_each_of_two_tables_is_a_double_effect(audit: Audit) -> None:
    found = audit.judged(f"{COUNTED} UNION ALL {COUNTED}").classes
    assert found["DOUBLE_EFFECT"] > DOUBLED * groups(audit)
    assert (found["EFFECT_IN_TIME"], found["EFFECT_LATE"]) == (0, 0)


def test_an_export_with_a_row_an_effect_shows_a_double_effect(audit: Audit, tmp_path: Path) -> None:
    one = audit.databases.asked["subscriptions"][0]
    with disposed(sa.create_engine(audit.databases.inbox_url)) as engine, engine.connect() as connection:
        keys = [str(key) for (key,) in connection.execute(sa.text(f"SELECT message_key {WHERE.format(**one)}"))]
    (tmp_path / "export").mkdir()
    pq.write_table(pa.table({"key": keys}), tmp_path / "export" / "a.parquet")
    assert audit.judged(f"parquet:{tmp_path}/export").classes["DOUBLE_EFFECT"] >= DOUBLED


@pytest.mark.parametrize(
    ("query", "has_rows", "told"),
    [
        # All of the table, and the rows of that day are still there, or were deleted by sweeper and purge.
        (COUNTED, True, True),
        (COUNTED, False, True),
        # Of the window, says the query; the outbox says that the commit was of another day.
        (DATED, True, False),
    ],
)
def test_effects_of_another_day_are_no_violations_of_this_one(
    audit: Audit, query: str, *, has_rows: bool, told: bool
) -> None:
    keys = [f"{0xABC000 + n:032X}" for n in range(5)]
    plant(audit.databases, keys, audit.databases.asked["window"]["start_ms"] - 10 * DAY_MS, has_rows=has_rows)
    judged = audit.judged(query)
    assert [finding for finding in judged.findings if finding.key in keys] == []
    assert judged.classes["EFFECT_WITHOUT_COMMIT"] == 0
    assert any("5 of their keys" in note and "left out" in note for note in judged.notes) is told


def test_an_effect_of_the_window_that_nobody_committed_is_still_found(audit: Audit) -> None:
    plant(audit.databases, ["AB" * 16], 0, has_rows=False)
    judged = audit.judged(DATED)
    assert [(f.class_name, f.key) for f in judged.findings if f.key == "AB" * 16] == [
        ("EFFECT_WITHOUT_COMMIT", "AB" * 16)
    ]


def groups(audit: Audit) -> int:
    return len(audit.databases.asked["subscriptions"])


def plant(databases: Databases, keys: list[str], at_ms: int, *, has_rows: bool) -> None:
    """Effects of the first subscription; with rows: in outbox and inbox, too."""
    asked = databases.asked["subscriptions"][0]
    place = {"topic": asked["topic"], "consumer_group": asked["group"]}
    commit = {"topic": asked["topic"], "producer_group": asked["producer_groups"][0], "created_at_ms": at_ms}
    commit |= {"state": "SETTLED", "tag": (asked["tags"] or [None])[0]}
    effect = {**place, "source": "consumer", "applied_at_ms": at_ms + 1000}
    rows: list[tuple[str, sa.Executable, dict[str, Any]]] = [
        (databases.inbox_url, sa.text("INSERT INTO payments VALUES (:unique_key, :topic, :consumer_group)"), place)
    ]
    if has_rows:
        rows.append((databases.outbox_url, tables.outbox.insert(), commit))
        rows.append((databases.inbox_url, tables.inbox.insert(), effect))
    for url, statement, row in rows:
        with disposed(sa.create_engine(url)) as engine, engine.begin() as connection:
            connection.execute(statement, [{"unique_key": key, **row} for key in keys])


def test_what_a_dead_attempt_had_looked_up_is_looked_up_again(tmp_path: Path) -> None:
    """Its files lie where the next attempt writes its own: a row that counted as known would be gone with them."""
    place = tmp_path / "inbox"
    place.mkdir()
    for name in ("inbox-0-0000.parquet", f"{PART}-07.parquet"):
        row = {"key": [name.encode()], "topic": ["ORDERS"], "consumer_group": ["billing"]}
        pq.write_table(pa.table(row), place / name)
    of_prefix = PrefixLookups(
        folder=str(tmp_path),
        prefixes=(7,),
        window_ms=(0, 1),
        may_count_ms=(0, 1),
        topics=("ORDERS",),
        inboxes=(),
        outboxes=(),
        effects=(),
        history=str(tmp_path),
        announced=(),
        announced_before=(),
        consumed=(),
        repaired=(),
        whole_outboxes=(),
        given_inboxes=(),
        ranges={"inbox/inbox-0-0000.parquet": (0,)},
    )
    assert keys_of_ranges(of_prefix, "inbox", "ORDERS").to_pylist() == [b"inbox-0-0000.parquet"]
