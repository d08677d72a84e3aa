"""A group's inbox in two databases is judged as one, and a key that both have took effect twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.sources import Source, parse_sources
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError
from reconciler.audit.result.values import JudgedWindow
from reconciler.sql import tables
from tests.audit.audited_databases import Databases, quiet
from tests.engines import disposed

#: With the audit's other long tests.
pytestmark = pytest.mark.spark

DAY_MS = 86_400_000


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=300, seed=5, accidents={"LOST": 2, "REPAIRED": 3, "EFFECT_LATE": 2}, topics=1), folder)
    return folder


class Shards:
    """The databases' inbox with each second row in another one, and what both hold."""

    def __init__(self, databases: Databases, second_url: str) -> None:
        self.databases = databases
        self.urls = (databases.inbox_url, second_url)
        first, second = (sa.create_engine(url) for url in self.urls)
        tables.inbox.create(second)
        with first.begin() as here, second.begin() as there:
            self.rows = [dict(row._mapping) for row in here.execute(sa.select(tables.inbox).order_by("unique_key"))]
            moved = self.rows[::2]
            there.execute(sa.insert(tables.inbox), moved)
            for row in moved:
                here.execute(sa.delete(tables.inbox).where(tables.inbox.c.unique_key == row["unique_key"]))
        first.dispose()
        second.dispose()

    def double(self, number: int, applied_at_ms: int) -> str:
        """A row of the second database comes into the first one, too."""
        row = {**self.rows[2 * number], "applied_at_ms": applied_at_ms}
        with disposed(sa.create_engine(self.urls[0])) as engine, engine.begin() as connection:
            connection.execute(sa.insert(tables.inbox), [row])
        return str(row["unique_key"])

    def judged(self, folder: Path, *, effects: bool, inboxes: Sequence[Source] | None = None) -> JudgedWindow:
        sources = self.databases.sources()
        if inboxes is None:
            inboxes = [Source(kind="database", address=url, option="--inbox") for url in self.urls]
        sources = replace(sources, inboxes=dict.fromkeys(sources.inboxes, tuple(inboxes)))
        request = self.databases.request(sources if effects else replace(sources, effects={}))
        asked = tuple(replace(s, effects=effects) for s in request.subscriptions)
        folder.mkdir()
        collect(replace(request, subscriptions=asked), folder, one_by_one, quiet)
        return judge_here(folder)


@pytest.fixture
def shards(sqlite: Databases, tmp_path: Path) -> Shards:
    sqlite.asked["subscriptions"] = sqlite.asked["subscriptions"][:1]
    one = sqlite.asked["subscriptions"][0]
    with disposed(sa.create_engine(sqlite.inbox_url)) as engine, engine.begin() as connection:
        # Rows of other groups are not asked for.
        connection.execute(sa.delete(tables.inbox).where(tables.inbox.c.consumer_group != one["group"]))
    return Shards(sqlite, f"sqlite:///{tmp_path}/second.db")


@pytest.mark.parametrize("effects", [False, True])
def test_two_inboxes_give_the_answer_of_one(shards: Shards, generated: Path, tmp_path: Path, *, effects: bool) -> None:
    judged = shards.judged(tmp_path / "evidence", effects=effects)
    group = shards.databases.asked["subscriptions"][0]["group"]
    expected = {f.key for f in judge_here(generated).findings if f.group == group}
    assert {f.key for f in judged.findings} == expected
    assert judged.classes["DOUBLE_EFFECT"] == 0
    assert judged.classes["EFFECT_IN_TIME"] > 100
    one = shards.judged(tmp_path / "half", effects=effects, inboxes=[
        Source(kind="database", address=shards.urls[0], option="--inbox")
    ])  # fmt: skip
    assert effects or one.classes["LOST"] > judged.classes["LOST"]


@pytest.mark.parametrize("effects", [False, True])
def test_a_key_in_two_inboxes_is_a_violation_whenever_its_second_effect_came(
    shards: Shards, tmp_path: Path, *, effects: bool
) -> None:
    window = shards.databases.asked["window"]
    keys = {
        shards.double(0, shards.rows[0]["applied_at_ms"]),  # at the same moment
        shards.double(1, shards.rows[2]["applied_at_ms"] + 1_000),
        shards.double(2, window["end_ms"] + DAY_MS),  # beyond what is read by ranges
        shards.double(3, window["start_ms"] - DAY_MS),
    }
    judged = shards.judged(tmp_path / "evidence", effects=effects)
    doubled = [f for f in judged.findings if f.class_name == "DOUBLE_EFFECT"]
    assert {f.key for f in doubled} == keys
    assert len(doubled) == len(keys)
    assert {f.evidence["effects"] for f in doubled} == {2}
    rows = [
        k for file in (tmp_path / "evidence").glob("effects/*.parquet") for k in pq.read_table(file)["key"].to_pylist()
    ]
    assert len(rows) == len(set(rows)), "one row a key, as the layout says"


def test_an_export_of_one_inbox_beside_a_database_counts_too(shards: Shards, tmp_path: Path) -> None:
    with disposed(sa.create_engine(shards.urls[1])) as engine, engine.connect() as connection:
        rows = [dict(row._mapping) for row in connection.execute(sa.select(tables.inbox))]
    (tmp_path / "export").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "export" / "inbox.parquet")
    doubled = shards.double(0, shards.databases.asked["window"]["end_ms"] + DAY_MS)
    judged = shards.judged(tmp_path / "evidence", effects=False, inboxes=[
        Source(kind="database", address=shards.urls[0], option="--inbox"),
        Source(kind="parquet", address=str(tmp_path / "export"), option="--inbox"),
    ])  # fmt: skip
    assert [f.key for f in judged.findings if f.class_name == "DOUBLE_EFFECT"] == [doubled]


def test_an_inbox_that_is_given_twice_is_refused_because_all_its_keys_would_look_doubled() -> None:
    one = "ORDERS/billing=sqlite:////tmp/hunter2.db"
    two = parse_sources(inbox=[one, "ORDERS/billing=sqlite:////tmp/b.db"]).inboxes["ORDERS", "billing"]
    assert len(two) == 2
    with pytest.raises(AuditError, match="given twice") as refused:
        parse_sources(inbox=[one, one])
    assert "hunter2" not in str(refused.value)
