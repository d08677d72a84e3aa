"""Collected from databases, the evidence gives the answer that the generated folder gives."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect import collecting, ranges
from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.sources import Source, parse_sources
from reconciler.audit.collect.tasks import Answer, LookUpTask, Task
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError
from reconciler.contract.unique_key import member_of
from reconciler.sql import tables
from tests.audit.audited_databases import Databases, quiet
from tests.audit.written_history import merge_away
from tests.engines import disposed

#: With the audit's other long tests.
pytestmark = pytest.mark.spark

ACCIDENTS = {
    "EFFECT_WITHOUT_COMMIT": 4,
    "DOUBLE_EFFECT": 4,
    "REPAIR_DIFFERS": 4,
    "UNNECESSARY_REPAIR": 4,
    "NOT_ANNOUNCED_NOT_FOUND": 4,
    "UNACCOUNTED": 4,
    "LOST": 6,
    "QUARANTINED": 4,
    "REPAIRED": 8,
    "EFFECT_LATE": 8,
    "FILTERED": 8,
    "REJECTED": 8,
    "ROLLED_BACK": 8,
}


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=1_500, seed=11, accidents=ACCIDENTS, topics=2, key_lengths=(16, 17, 28, 32, 33)), folder)
    return folder


def collected(databases: Databases, folder: Path) -> Path:
    folder.mkdir()
    collect(databases.request(), folder, one_by_one, quiet)
    return folder


def test_the_answer_is_that_of_the_generated_folder(databases: Databases, generated: Path, tmp_path: Path) -> None:
    judged = judge_here(collected(databases, tmp_path / "evidence"))
    expected = judge_here(generated)
    assert judged.classes == expected.classes
    assert {(f.class_name, f.topic, f.group, f.key) for f in judged.findings} == {
        (f.class_name, f.topic, f.group, f.key) for f in expected.findings
    }
    assert judged.no_answer is None
    planted = json.loads((generated / "planted.json").read_text())
    assert {name: judged.classes[name] for name in planted} == {name: len(keys) for name, keys in planted.items()}


def test_every_file_is_named_and_nothing_else_is_there(sqlite: Databases, tmp_path: Path) -> None:
    folder = collected(sqlite, tmp_path / "evidence")
    document = json.loads((folder / "evidence.json").read_text())
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there == {*document["files"], "evidence.json"}
    assert document["ledger"] is True
    assert {path.split("/")[0] for path in there} >= {"outbox", "inbox", "effects", "candidate", "repair"}


def test_many_pieces_and_few_give_the_same_answer(
    sqlite: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = collected(sqlite, tmp_path / "few")
    monkeypatch.setattr(ranges, "RANGE_ROWS", 400)
    monkeypatch.setattr(collecting, "LOOK_UP_ROWS", 3_000)
    many = collected(sqlite, tmp_path / "many")
    parts = [{file.name for file in folder.glob("outbox/outbox-0-*.parquet")} for folder in (few, many)]
    assert parts[0] == {"outbox-0-0000.parquet"}
    assert len(parts[1]) > 2
    judged = [judge_here(folder) for folder in (few, many)]
    assert judged[0].findings
    assert repr(judged[0].findings) == repr(judged[1].findings)
    assert (judged[0].classes, judged[0].notes) == (judged[1].classes, judged[1].notes)


def test_what_a_dead_attempt_of_a_task_left_is_no_evidence(sqlite: Databases, tmp_path: Path) -> None:
    """Half a file, and a whole one of rows that were gone when the task ran again."""
    folder = tmp_path / "evidence"

    def run_after_a_dead_attempt(function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
        for name in ("outbox/.outbox-0-0000.parquet.77.partial", "inbox/inbox-9-9-0000.parquet"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"PAR1")
        return one_by_one(function, tasks)

    folder.mkdir()
    collect(sqlite.request(), folder, run_after_a_dead_attempt, quiet)
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there == {*json.loads((folder / "evidence.json").read_text())["files"], "evidence.json"}
    judge_here(folder)


def test_what_is_merged_away_in_the_history_under_an_audit_is_read_from_the_merged_files(
    sqlite: Databases, generated: Path, tmp_path: Path
) -> None:
    history = shutil.copytree(sqlite.history, tmp_path / "history")
    lookups, judged_prefixes = 0, []

    def run_after_a_merge(function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
        nonlocal lookups
        if isinstance(tasks[0], LookUpTask):
            lookups += 1
            if lookups == 1:
                merge_away(history, sqlite.asked["environment"])
        return one_by_one(function, tasks)

    def merge_behind_the_first_prefix(done: int) -> None:
        judged_prefixes.append(done)
        if len(judged_prefixes) == 1:
            merge_away(history, sqlite.asked["environment"])

    folder = tmp_path / "evidence"
    folder.mkdir()
    collect(replace(sqlite, history=history).request(), folder, run_after_a_merge, quiet)
    judged = judge_here(folder, progress=merge_behind_the_first_prefix)
    assert (lookups, judged_prefixes.count(1)) == (2, 2), "each was asked a second time"
    planted = json.loads((generated / "planted.json").read_text())
    assert {name: judged.classes[name] for name in planted} == {name: len(keys) for name, keys in planted.items()}


def test_an_effect_of_a_message_that_was_committed_long_before_is_no_phantom(sqlite: Databases, tmp_path: Path) -> None:
    start_ms = sqlite.asked["window"]["start_ms"]
    asked = sqlite.asked["subscriptions"][0]
    key = "AB" * 16
    row = {"unique_key": key, "topic": asked["topic"], "state": "ANNOUNCED", "created_at_ms": start_ms - 86_400_000}
    run(sqlite.outbox_url, sa.insert(tables.outbox).values(**row, producer_group=asked["producer_groups"][0]))
    effect = {"unique_key": key, "topic": asked["topic"], "consumer_group": asked["group"], "source": "consumer"}
    run(sqlite.inbox_url, sa.insert(tables.inbox).values(**effect, applied_at_ms=start_ms + 1))
    folder = collected(sqlite, tmp_path / "evidence")
    keys = [k for file in folder.glob("outbox/*.parquet") for k in pq.read_table(file)["key"].to_pylist()]
    assert keys.count(member_of(key)) == 1
    assert key not in {f.key for f in judge_here(folder).findings}


def test_an_effect_long_after_the_window_is_late_and_not_lost(sqlite: Databases, tmp_path: Path) -> None:
    window = sqlite.asked["window"]
    asked = sqlite.asked["subscriptions"][0]
    lost = next(f for f in judge_here(collected(sqlite, tmp_path / "before")).findings if f.class_name == "LOST")
    of_group = next(s for s in sqlite.asked["subscriptions"] if s["topic"] == lost.topic and s["group"] == lost.group)
    assert asked["late_after_seconds"] < 86_400
    effect = {"unique_key": lost.key, "topic": lost.topic, "consumer_group": of_group["group"], "source": "consumer"}
    run(sqlite.inbox_url, sa.insert(tables.inbox).values(**effect, applied_at_ms=window["end_ms"] + 86_400_000))
    after = {f.key: f.class_name for f in judge_here(collected(sqlite, tmp_path / "after")).findings}
    assert after[lost.key] != "LOST"


def test_rows_of_before_the_window_are_read_as_far_as_they_may_count_in_it(sqlite: Databases, tmp_path: Path) -> None:
    """No other table names a commit that no witness has seen; one that took effect at once is not taken for such."""
    start_ms, asked = sqlite.asked["window"]["start_ms"], sqlite.asked["subscriptions"][0]
    late_ms = round(asked["late_after_seconds"] * 1000)
    unseen, late, ordinary = (f"{0xABC000 + number:032X}" for number in range(3))
    of = {"topic": asked["topic"], "state": "ANNOUNCED", "tag": (asked["tags"] or [None])[0]}
    of |= {"producer_group": asked["producer_groups"][0], "created_at_ms": start_ms - late_ms}
    for key in (unseen, late, ordinary):
        run(sqlite.outbox_url, sa.insert(tables.outbox).values(unique_key=key, **of))
    effect = {"topic": asked["topic"], "consumer_group": asked["group"], "source": "consumer"}
    for key, applied_at_ms in ((late, start_ms + late_ms), (ordinary, start_ms - late_ms + 1000)):
        row = {"unique_key": key, **effect, "applied_at_ms": applied_at_ms}
        run(sqlite.inbox_url, sa.insert(tables.inbox).values(row))
    judged = judge_here(collected(sqlite, tmp_path / "evidence"))
    group = (asked["topic"], asked["group"])
    found = {f.key: f.class_name for f in judged.findings if (f.topic, f.group) == group}
    assert (found.get(unseen), found.get(late), found.get(ordinary)) == ("NOT_ANNOUNCED_NOT_FOUND", "EFFECT_LATE", None)
    [note] = (note for note in judged.notes if "written before the window" in note and "/".join(group) in note)
    assert "counted here: 2 (" in note


def run(url: str, statement: sa.Executable) -> None:
    with disposed(sa.create_engine(url)) as engine, engine.begin() as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("DROP TABLE reconciler_outbox", "there is no table reconciler_outbox"),
        ("ALTER TABLE reconciler_outbox DROP COLUMN tag", "reconciler_outbox has no column tag"),
        ("UPDATE reconciler_outbox SET unique_key = 'XYZ' || unique_key", "a row does not fit outbox"),
        (
            "UPDATE reconciler_outbox SET unique_key = substr(unique_key, 1, 8)",
            "is no unique key: expected 16 to 64",
        ),
    ],
)
def test_a_database_of_another_shape_is_no_evidence(
    sqlite: Databases, tmp_path: Path, spoil: str, message: str
) -> None:
    if "UPDATE" in spoil:
        run(sqlite.outbox_url, sa.text("CREATE TABLE copy AS SELECT * FROM reconciler_outbox"))
        run(sqlite.outbox_url, sa.text("DROP TABLE reconciler_outbox"))
        run(sqlite.outbox_url, sa.text("ALTER TABLE copy RENAME TO reconciler_outbox"))
    run(sqlite.outbox_url, sa.text(spoil))
    with pytest.raises(AuditError, match=message) as refused:
        collected(sqlite, tmp_path / "evidence")
    assert refused.value.reason == "inputs"
    assert not (tmp_path / "evidence" / "evidence.json").exists()
    assert not list((tmp_path / "evidence").rglob("*.partial"))


@pytest.mark.parametrize("column", ["consumer_group", "topic", "unique_key"])
def test_rows_of_another_name_are_refused_where_the_database_takes_them_for_those_asked_for(
    sqlite: Databases, tmp_path: Path, column: str
) -> None:
    """A group, topic or key in another case, under a collation that folds it."""
    with_collation = f"{column} VARCHAR COLLATE NOCASE"
    run(sqlite.inbox_url, sa.text("CREATE TABLE copy AS SELECT * FROM reconciler_inbox"))
    run(sqlite.inbox_url, sa.text(f"ALTER TABLE copy RENAME COLUMN {column} TO before"))
    run(sqlite.inbox_url, sa.text("DROP TABLE reconciler_inbox"))
    run(sqlite.inbox_url, sa.text("ALTER TABLE copy RENAME TO reconciler_inbox"))
    run(sqlite.inbox_url, sa.text(f"ALTER TABLE reconciler_inbox ADD COLUMN {with_collation}"))
    other = "CASE WHEN before = lower(before) THEN upper(before) ELSE lower(before) END"
    spoil = f"UPDATE reconciler_inbox SET {column} = CASE WHEN rowid % 9 THEN before ELSE {other} END"
    run(sqlite.inbox_url, sa.text(spoil))
    if column == "unique_key":  # of the window, and found by key alone
        run(sqlite.inbox_url, sa.text("UPDATE reconciler_inbox SET applied_at_ms = 99999999999999 WHERE rowid % 9 = 0"))
    with pytest.raises(AuditError, match=f"it gave rows of {column} .*which was not asked for") as refused:
        collected(sqlite, tmp_path / "evidence")
    assert refused.value.reason == "inputs"


def test_an_unknown_state_of_a_row_is_never_guessed_at(sqlite: Databases, tmp_path: Path) -> None:
    run(sqlite.outbox_url, sa.text("UPDATE reconciler_outbox SET state = 'FROZEN' WHERE state = 'SETTLED'"))
    with pytest.raises(AuditError, match="'FROZEN', which this audit does not know") as refused:
        judge_here(collected(sqlite, tmp_path / "evidence"))
    assert refused.value.reason == "inputs"


def test_the_audit_cannot_write_into_what_it_reads(databases: Databases, tmp_path: Path) -> None:
    sources = databases.sources()
    key = next(iter(sources.effects))
    query = "WITH gone AS (DELETE FROM payments RETURNING message_key) SELECT message_key FROM gone"
    effects = {**sources.effects, key: replace(sources.effects[key], query=query)}
    (tmp_path / "evidence").mkdir()
    request = databases.request(replace(sources, effects=effects))
    with pytest.raises(AuditError):
        collect(request, tmp_path / "evidence", one_by_one, quiet)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT message_key, topic, 1 FROM payments", "3 columns"),
        ("SELECT message_key FROM nowhere", "did not answer to the end"),
        ("SELECT message_key FROM payments WHERE topic = :other", "may use :start_ms and :end_ms"),
        ("SELECT topic FROM payments", "is no unique key"),
    ],
)
def test_a_query_that_does_not_count_effects_is_refused(
    sqlite: Databases, tmp_path: Path, query: str, message: str
) -> None:
    sources = sqlite.sources()
    effects = {key: replace(one, query=query) for key, one in sources.effects.items()}
    (tmp_path / "evidence").mkdir()
    with pytest.raises(AuditError, match=message):
        collect(sqlite.request(replace(sources, effects=effects)), tmp_path / "evidence", one_by_one, quiet)


@pytest.mark.parametrize("url", ["postgresql://auditor:hunter2@127.0.0.1:1/x", "mysql://auditor:hunter2@127.0.0.1:1/x"])
def test_a_database_that_is_away_is_named_without_its_password(sqlite: Databases, tmp_path: Path, url: str) -> None:
    sources = replace(sqlite.sources(), outboxes=parse_sources(outbox=[f"orders={url}"]).outboxes)
    (tmp_path / "evidence").mkdir()
    with pytest.raises(AuditError, match="--outbox orders: the database did not answer") as refused:
        collect(sqlite.request(sources), tmp_path / "evidence", one_by_one, quiet)
    assert refused.value.reason == "inputs"
    assert "hunter2" not in f"{refused.value!r} {refused.value.__cause__!r} {refused.value.__context__!r} {sources!r}"


@pytest.mark.parametrize("text", [pa.string(), pa.binary()], ids=["text", "text as BINARY"])
def test_exports_give_the_same_answer(sqlite: Databases, generated: Path, tmp_path: Path, text: pa.DataType) -> None:
    """Impala and Hive write text columns as Parquet's BINARY, without the annotation that makes them UTF-8."""

    def export(url: str, names: list[str]) -> Path:
        folder = tmp_path / f"export-{names[0]}"
        with disposed(sa.create_engine(url)) as engine, engine.connect() as connection:
            for name in names:
                rows = [dict(row) for row in connection.execute(sa.text(f"SELECT * FROM {name}")).mappings()]
                (folder / name).mkdir(parents=True)
                table = pa.Table.from_pylist(rows)
                fields = [one.with_type(text) if pa.types.is_string(one.type) else one for one in table.schema]
                pq.write_table(table.cast(pa.schema(fields)), folder / name / "a.parquet")
        return folder

    sources = sqlite.sources()
    outbox = Source(kind="parquet", address=str(export(sqlite.outbox_url, ["reconciler_outbox"])), option="--outbox")
    inbox = Source(kind="parquet", address=str(export(sqlite.inbox_url, ["reconciler_inbox"])), option="--inbox")
    ledger = export(sqlite.ledger_url, ["reconciler_candidate", "reconciler_repair", "reconciler_round"])
    given = replace(
        sources,
        outboxes=tuple((group, outbox) for group, _ in sources.outboxes),
        inboxes=dict.fromkeys(sources.inboxes, (inbox,)),
        ledger=Source(kind="parquet", address=str(ledger), option="--ledger"),
    )
    (tmp_path / "evidence").mkdir()
    collect(sqlite.request(given), tmp_path / "evidence", one_by_one, quiet)
    judged = judge_here(tmp_path / "evidence")
    assert judged.classes == judge_here(generated).classes
    assert judged.not_judged.rows == 0


def test_delta_without_its_package_says_what_to_install(
    sqlite: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    sources = replace(sqlite.sources(), ledger=parse_sources(ledger="delta:/nowhere").ledger)
    (tmp_path / "evidence").mkdir()
    with pytest.raises(AuditError, match="pip install deltalake"):
        collect(sqlite.request(sources), tmp_path / "evidence", one_by_one, quiet)


def test_an_export_without_a_column_is_no_evidence(sqlite: Databases, tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    pq.write_table(
        pa.Table.from_pylist([{"unique_key": "AB" * 16, "topic": "ORDERS"}]), tmp_path / "export" / "a.parquet"
    )
    sources = parse_sources(outbox=[f"orders=parquet:{tmp_path}/export"])
    (tmp_path / "evidence").mkdir()
    given = replace(sqlite.sources(), outboxes=sources.outboxes)
    with pytest.raises(AuditError, match="the export has no column"):
        collect(sqlite.request(given), tmp_path / "evidence", one_by_one, quiet)


def not_checked(folder: Path) -> set[tuple[str, str, str]]:
    return {(one.topic, one.class_name, one.why) for one in judge_here(folder).not_checked}


def test_a_check_whose_column_a_source_lacks_is_told_as_not_made(sqlite: Databases, tmp_path: Path) -> None:
    """Inboxes and ledgers of earlier releases lack it; what is not there was never seen to be empty."""
    topics = sorted(s["topic"] for s in sqlite.asked["subscriptions"])
    assert not_checked(collected(sqlite, tmp_path / "whole")) == set()
    for url, table, column, name, why in (
        (
            sqlite.inbox_url,
            "inbox",
            "incomplete",
            "EFFECT_INCOMPLETE",
            "rows of the inbox have no column incomplete, which shows a handler that stopped half way",
        ),
        (
            sqlite.ledger_url,
            "repair",
            "first_sent_at_ms",
            "UNNECESSARY_REPAIR",
            "repairs of the ledger have no column first_sent_at_ms: keys that were sent more than once are not checked",
        ),
    ):
        run(url, sa.text(f"ALTER TABLE reconciler_{table} RENAME COLUMN {column} TO other"))
        folder = collected(sqlite, tmp_path / column)
        assert not_checked(folder) == {(topic, name, why) for topic in topics}
        run(url, sa.text(f"ALTER TABLE reconciler_{table} RENAME COLUMN other TO {column}"))


def test_a_check_is_not_made_where_one_inbox_of_the_group_is_an_export_without_the_column(
    sqlite: Databases, tmp_path: Path
) -> None:
    """Also where the export has no row at all."""
    with disposed(sa.create_engine(sqlite.inbox_url)) as engine, engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(sa.text("SELECT * FROM reconciler_inbox")).mappings()]
    (tmp_path / "export").mkdir()
    table = pa.Table.from_pylist(rows).drop_columns(["incomplete"])
    pq.write_table(table.slice(0, 0), tmp_path / "export" / "a.parquet")
    export = Source(kind="parquet", address=str(tmp_path / "export"), option="--inbox")
    sources = sqlite.sources()
    asked, *others = sorted(sources.inboxes)
    given = replace(sources, inboxes={**sources.inboxes, asked: (*sources.inboxes[asked], export)})
    (tmp_path / "evidence").mkdir()
    collect(sqlite.request(given), tmp_path / "evidence", one_by_one, quiet)
    assert others
    assert {(topic, name) for topic, name, _ in not_checked(tmp_path / "evidence")} == {(asked[0], "EFFECT_INCOMPLETE")}


def test_a_history_that_is_not_there_is_told_before_databases_are_read(sqlite: Databases, tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    request = replace(sqlite.request(), history=str(tmp_path / "nowhere"))
    with pytest.raises(AuditError, match="name the history's folder") as refused:
        collect(request, tmp_path / "evidence", one_by_one, quiet)
    assert refused.value.reason == "inputs"
    assert list((tmp_path / "evidence").iterdir()) == []
