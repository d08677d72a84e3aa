"""Tables of `--tables`: every key as it was judged, one window replaced exactly, nothing half to be seen."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.generate_history import OPTIONS
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import CLASSES, Plan
from reconciler.audit.command import main
from reconciler.audit.engines.job import judge_here, judge_on_spark
from reconciler.audit.engines.lake_tables import load_run
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.folder import read_document
from reconciler.audit.judge.judged_keys import key_texts, timestamps
from reconciler.audit.judge.keys import KeyLayout
from reconciler.audit.judged_tables.schema import COLUMNS, KEYS, RUNS, SCHEMAS
from reconciler.audit.output.judged_tables import claim_tables
from reconciler.audit.output.writing import write_output
from reconciler.audit.platform import load_tables
from reconciler.audit.result.values import Window
from reconciler.contract.unique_key import key_of, member_of
from tests.audit.docs_judge import judge
from tests.audit.judged_tables import audit, connected, day, names_of, rows_of
from tests.audit.random_evidence import random_evidence
from tests.audit.small_evidence import GROUP, START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

HOUR_MS = 3_600_000
#: Audits copies of a folder of tables, and is killed before the first, the second ... step of each; the last is not.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from reconciler.audit.output.judged_tables import ClaimedTables
from tests.audit.judged_tables import audit

evidence, before, copies = map(Path, sys.argv[1:])
steps, killed_before = 0, 0

def counted(real):
    def step(*arguments, **named):
        global steps
        steps += 1
        if steps == killed_before:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return step

os.replace, Path.unlink, ClaimedTables._written = map(counted, (os.replace, Path.unlink, ClaimedTables._written))
is_killed = True
while is_killed:
    killed_before += 1
    tables = copies / f"{killed_before}" / "tables"
    shutil.copytree(before, tables)
    child = os.fork()
    if child == 0:
        os._exit(audit(evidence, tables))
    is_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
"""


def disagreements(folder: Path, tables: Path) -> tuple[list[tuple[object, ...]], Counter[str]]:
    """Keys that the docs' judge and audit_keys put into two classes or times; and how many of each class agree."""
    with judge(folder) as judged, connected(tables) as said:
        docs = {
            (topic, group, key_of(key), at, name)
            for topic, group, key, at, name in judged.execute(
                'SELECT topic, "group", key, time_ms, class FROM judged'
            ).fetchall()
        }
        rows = said.execute("SELECT topic, consumer_group, key, epoch_ms(counted_at), class FROM audit_keys").fetchall()
    assert len(rows) == len(set(rows))
    return sorted(docs ^ set(rows)), Counter(name for *_, name in docs & set(rows))


@pytest.mark.parametrize(
    "keys", [100_000, pytest.param(1_000_000, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
def test_a_table_of_keys_has_every_key_as_the_docs_judge_says_of_it(tmp_path: Path, keys: int) -> None:
    plan = Plan(
        rows=keys,
        seed=42,
        accidents=dict.fromkeys(OPTIONS, 200),
        shards=4,
        key_lengths=(16, 17, 28, 32, 33),
    )
    generate(plan, tmp_path / "evidence", workers=2)
    assert audit(tmp_path / "evidence", tmp_path / "tables") == 1
    differing, agreeing = disagreements(tmp_path / "evidence", tmp_path / "tables")
    assert differing == []
    assert agreeing.total() == keys
    assert set(agreeing) == set(CLASSES)


@pytest.mark.nightly
def test_writing_judged_keys_takes_at_most_half_of_judging_them(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """In processor time of the one process that does all of it."""
    generate(Plan(rows=1_000_000, seed=42, accidents=dict.fromkeys(OPTIONS, 200), shards=4), tmp_path / "evidence")
    of = read_document(tmp_path / "evidence")
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for is_written in [False, True] * 3:
        tables, out = tmp_path / "tables", tmp_path / "out"
        with claim_tables(tables, out, environment=of.environment, window=of.window, now_ms=0) as claimed:
            began = time.process_time()
            judged = judge_here(tmp_path / "evidence", keys=claimed.target if is_written else None)
            took = time.process_time() - began
            if is_written:
                write_output(judged, out)
                began = time.process_time()
                claimed.replace(judged, out, release="x", now_ms=0)
                took += time.process_time() - began
            seconds[is_written].append(took)
    judging, written = min(seconds[False]), min(seconds[True])
    record_property("seconds", (judging, written))
    assert written <= 1.5 * judging, seconds


def test_rows_that_contradict_each_other_are_in_the_table_as_the_docs_judge_says_of_them(tmp_path: Path) -> None:
    random_evidence(6, keys=3_000).write(tmp_path / "evidence")
    assert audit(tmp_path / "evidence", tmp_path / "tables") == 1
    differing, agreeing = disagreements(tmp_path / "evidence", tmp_path / "tables")
    assert differing == []
    assert set(agreeing) == set(CLASSES)


def test_the_tables_say_what_the_folder_of_the_result_says(tmp_path: Path) -> None:
    random_evidence(6, keys=500).write(tmp_path / "evidence")
    audit(tmp_path / "evidence", tmp_path / "tables")
    out = tmp_path / "evidence-out"
    found = rows_of(tmp_path / "tables")
    result = json.loads((out / "result.json").read_bytes())
    by_class = Counter({name: keys for name, keys in result["classes"].items() if keys})
    assert Counter(row["class"] for row in found["audit_keys"]) == by_class
    assert sum(row["keys"] for row in found["audit_counts"]) == by_class.total()
    findings = json.loads((out / "findings.json").read_bytes())
    assert len(found["audit_findings"]) == len(findings) > 100
    shown = {(f["topic"], f["group"], f["key"]): f["evidence"] for f in findings}
    for row in found["audit_findings"]:
        evidence = shown[row["topic"], row["consumer_group"], row["key"]]
        times = {name: at for name, at in evidence.items() if name.endswith("_ms")}
        told = {name: at for name, at in row.items() if at is not None and hasattr(at, "timestamp")}
        told = {name: at for name, at in told.items() if name not in ("window_start", "window_end")}
        assert sorted(times.values()) == sorted(round(at.timestamp() * 1000) for at in told.values())
        for name in set(evidence) - set(times) - {"undated"}:
            assert row[name] == evidence[name]
    assert [row["keys"] for row in found["audit_runs"]] == [one["keys"] for one in result["subscriptions"]]


@pytest.mark.spark
def test_tasks_on_spark_write_the_rows_that_one_process_writes(spark: SparkSession, tmp_path: Path) -> None:
    evidence = random_evidence(5, keys=400).write(tmp_path / "evidence")
    audit(evidence, tmp_path / "here")
    window = Window(start_ms=START_MS, end_ms=START_MS + 3_600_000)
    out = tmp_path / "out"
    with claim_tables(tmp_path / "spark", out, environment="test", window=window, now_ms=START_MS) as claimed:
        (claimed.attempts / "000-of-a-killed-attempt.parquet").write_bytes(b"half a file")
        judged = judge_on_spark(evidence, spark, keys=claimed.target)
        write_output(judged, out)
        claimed.replace(judged, out, release="x", now_ms=START_MS)
    of_engine = [{**row, "engine": None} for row in rows_of(tmp_path / "spark")["audit_runs"]]
    assert of_engine == [{**row, "engine": None} for row in rows_of(tmp_path / "here")["audit_runs"]]
    for table in set(COLUMNS) - {RUNS}:
        assert rows_of(tmp_path / "spark")[table] == rows_of(tmp_path / "here")[table]
    assert list((tmp_path / "spark" / "_attempts").iterdir()) == []
    read = spark.read.parquet(str(tmp_path / "spark" / KEYS))
    assert read.count() == len(rows_of(tmp_path / "here")[KEYS])
    assert {name: kind for name, kind in read.dtypes if kind == "timestamp"}.keys() == {
        column.name for column in COLUMNS[KEYS] if pa.types.is_timestamp(column.type)
    }


@pytest.mark.spark
def test_a_run_that_the_folder_lacks_is_not_loaded_into_a_catalogue(spark: SparkSession, tmp_path: Path) -> None:
    audit(day(0).write(tmp_path / "day"), tmp_path / "tables")
    with pytest.raises(AuditError, match="the tables have no run nobody; another audit of its window replaced it"):
        load_run(spark, tmp_path / "tables", "nobody", into="nowhere", kind="iceberg")


@pytest.mark.spark
def test_a_session_that_cannot_merge_is_told_before_a_run_is_loaded(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of PySpark 3.5, whose DataFrames have no mergeInto."""
    for kind in type(spark.range(0)).__mro__:
        if "mergeInto" in vars(kind):
            monkeypatch.delattr(kind, "mergeInto")
    answers = (pytest.fail("a run was loaded") for _ in range(1))
    with pytest.raises(AuditError, match=r"no mergeInto, .*; load the tables with PySpark 4\.0 or newer") as refused:
        load_tables(spark, answers, tables="nowhere", into="nowhere", kind="iceberg")
    assert refused.value.reason == "configuration"


@pytest.mark.parametrize("days", [10, pytest.param(90, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
def test_days_again_and_a_back_fill_over_all_leave_the_rows_of_one_run_a_day(tmp_path: Path, days: int) -> None:
    written = [day(number).write(tmp_path / f"day-{number}") for number in range(days)]
    for one in written:
        assert audit(one, tmp_path / "tables") == 1
    once, names = rows_of(tmp_path / "tables"), names_of(tmp_path / "tables")
    assert len(once["audit_keys"]) == days * 12
    for number in (7, 2, 9):
        audit(written[number], tmp_path / "tables")
    assert (rows_of(tmp_path / "tables"), names_of(tmp_path / "tables")) == (once, names)
    for one in written:
        audit(one, tmp_path / "tables")
    assert (rows_of(tmp_path / "tables"), names_of(tmp_path / "tables")) == (once, names)
    with connected(tmp_path / "tables") as connection:
        assert connection.execute("SELECT count(DISTINCT run) FROM audit_runs").fetchone() == (days,)


def test_an_hour_again_leaves_the_other_hours_of_its_day(tmp_path: Path) -> None:
    """All of them begin on one day: a replacement by day would take them all."""
    for number in range(24):
        assert audit(day(number, length_ms=HOUR_MS).write(tmp_path / f"hour-{number}"), tmp_path / "tables") == 1
    once, names = rows_of(tmp_path / "tables"), names_of(tmp_path / "tables")
    audit(tmp_path / "hour-13", tmp_path / "tables")
    assert (rows_of(tmp_path / "tables"), names_of(tmp_path / "tables")) == (once, names)
    assert Counter(row["window_start"].hour for row in once["audit_keys"]) == dict.fromkeys(range(24), 12)


def test_a_run_that_is_killed_between_two_steps_shows_the_older_rows_or_the_newer_ones_and_the_next_clears_up(
    tmp_path: Path,
) -> None:
    tables = tmp_path / "tables"
    first = day(0)
    del first.rows["inbox"][0]
    audit(first.write(tmp_path / "first"), tables)
    evidence = day(0).write(tmp_path / "evidence")
    audit(evidence, tmp_path / "clean" / "tables")
    older, newer, names = (
        rows_of(tables),
        rows_of(tmp_path / "clean" / "tables"),
        names_of(tmp_path / "clean" / "tables"),
    )
    assert older[KEYS] != newer[KEYS]
    command = [sys.executable, "-c", KILLED, str(evidence), str(tables), str(tmp_path / "copies")]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True, capture_output=True)
    copies = sorted((tmp_path / "copies").iterdir(), key=lambda path: int(path.name))
    assert len(copies) > 10
    shown = [rows_of(copy / "tables") for copy in copies]
    is_newer = [rows == newer for rows in shown]
    assert all(rows in (older, newer) for rows in shown)
    assert is_newer == sorted(is_newer)
    assert is_newer[0] is False
    assert is_newer[-2:] == [True, True]
    for copy in copies:
        assert audit(evidence, copy / "tables") == 1
        assert (rows_of(copy / "tables"), names_of(copy / "tables")) == (newer, names)


def test_an_audit_of_one_subscription_replaces_its_rows_and_leaves_the_others(tmp_path: Path) -> None:
    audit(day(0, (GROUP, "mail")).write(tmp_path / "both"), tmp_path / "tables")
    before = rows_of(tmp_path / "tables")
    mail = day(0, ("mail",))
    del mail.rows["inbox"][0]
    audit(mail.write(tmp_path / "mail"), tmp_path / "tables")
    after = rows_of(tmp_path / "tables")
    for table in COLUMNS:
        groups = [[row for row in rows[table] if row["consumer_group"] == GROUP] for rows in (before, after)]
        assert groups[0] == groups[1] != []
    lost = [row for row in after[KEYS] if row["consumer_group"] == "mail" and row["class"] != "EFFECT_IN_TIME"]
    assert len(lost) == 3
    files = (tmp_path / "tables" / KEYS).iterdir()
    assert sorted(pq.ParquetFile(path).metadata.num_rows for path in files) == [12, 12]


def test_the_same_window_of_another_environment_is_another_one(tmp_path: Path) -> None:
    evidence = day(0).write(tmp_path / "evidence")
    audit(evidence, tmp_path / "tables")
    said = json.loads((evidence / "evidence.json").read_text())
    (evidence / "evidence.json").write_text(json.dumps({**said, "environment": "staging"}))
    audit(evidence, tmp_path / "tables")
    assert len(rows_of(tmp_path / "tables")[KEYS]) == 24


def test_a_window_without_an_answer_is_a_run_that_says_why(tmp_path: Path) -> None:
    unfinished = day(0)
    unfinished.collected_at_ms = unfinished.as_of_ms = unfinished.end_ms
    assert audit(unfinished.write(tmp_path / "evidence"), tmp_path / "tables") == 2
    (run,) = rows_of(tmp_path / "tables")[RUNS]
    assert (run["verdict"], run["reason"], run["closed"]) == ("no answer", "window", False)
    assert len(rows_of(tmp_path / "tables")[KEYS]) == 12


def test_evidence_that_cannot_be_judged_leaves_the_older_rows(tmp_path: Path) -> None:
    evidence = day(0).write(tmp_path / "evidence")
    audit(evidence, tmp_path / "tables")
    before, names = rows_of(tmp_path / "tables"), names_of(tmp_path / "tables")
    next((evidence / "inbox").rglob("*.parquet")).write_bytes(b"altered")
    assert audit(evidence, tmp_path / "tables") == 2
    assert (rows_of(tmp_path / "tables"), names_of(tmp_path / "tables")) == (before, names)


def test_a_second_audit_of_a_window_is_refused_while_one_writes_it_and_other_windows_are_not(tmp_path: Path) -> None:
    tables, out = tmp_path / "tables", tmp_path / "out"
    window, next_one = Window(start_ms=0, end_ms=1_000), Window(start_ms=1_000, end_ms=2_000)
    with claim_tables(tables, out, environment="e", window=window, now_ms=0):
        with (
            pytest.raises(
                AuditError,
                match=r"another audit is writing the window 1970-01-01T00:00:00\.000Z to 1970-01-01T00:00:01\.000Z",
            ),
            claim_tables(tables, out, environment="e", window=window, now_ms=0),
        ):
            pass
        with claim_tables(tables, out, environment="e", window=next_one, now_ms=0):
            pass
    with claim_tables(tables, out, environment="e", window=window, now_ms=0):
        pass


@pytest.mark.parametrize("place", ["out", "out/tables", "foreign", "file"])
def test_a_folder_that_is_no_folder_of_tables_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(AuditError, match="name a") as refused,
        claim_tables(
            tmp_path / place, tmp_path / "out", environment="e", window=Window(start_ms=0, end_ms=1), now_ms=0
        ),
    ):
        pass
    assert refused.value.reason == "usage"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "foreign"]


def test_a_row_of_an_earlier_release_stays_beside_those_of_one_with_more_columns(tmp_path: Path) -> None:
    audit(day(0, (GROUP, "mail")).write(tmp_path / "both"), tmp_path / "tables")
    (path,) = (tmp_path / "tables" / RUNS).iterdir()
    pq.write_table(pq.read_table(path).drop_columns(["signed_by"]), path)
    audit(day(0, ("mail",)).write(tmp_path / "mail"), tmp_path / "tables")
    runs = rows_of(tmp_path / "tables")[RUNS]
    assert [(run["consumer_group"], run["signed_by"], run["keys"]) for run in runs] == [
        (GROUP, None, 12),
        ("mail", None, 12),
    ]


def test_the_text_of_a_key_is_that_of_the_contract() -> None:
    chance = random.Random(3)
    lengths = (1, 15, 16, 17, 28, 32, 33, 40, 65, 70)
    keys = [chance.randbytes(length) for length in lengths for _ in range(3)]
    keys += [member_of(text) for text in ("a" * 16, "-" * 32, "Z_9" * 21, "0f" * 16)]
    for some in (keys, keys[6:9], []):
        layout = KeyLayout([len(key) for key in some])
        texts = key_texts(layout.words(pa.array(some, pa.binary())), layout)
        assert texts.to_pylist() == [key_of(key) for key in some]


def test_a_time_that_no_reader_can_show_is_null() -> None:
    shown = [-62_135_596_800_000, 0, 253_402_300_799_999]
    beyond = [shown[0] - 1, shown[-1] + 1, np.iinfo(np.int64).max, np.iinfo(np.int64).min]
    found = timestamps(np.array([*shown, *beyond]))
    assert found.cast(pa.int64()).to_pylist() == [*(1_000 * at for at in shown), None, None, None, None]


def test_columns_that_are_added_are_nullable_and_stand_behind_the_others() -> None:
    """What a release has written is read beside what the next one writes."""
    assert {name: len(schema) for name, schema in SCHEMAS.items()} == {
        "audit_keys": 20,
        "audit_findings": 38,
        "audit_counts": 10,
        "audit_runs": 25,
    }
    for table, columns in COLUMNS.items():
        assert len({column.name for column in columns}) == len(columns), table
        assert [column.name for column in columns[:6]] == [column.name for column in COLUMNS[KEYS][:6]]


def test_more_keys_than_one_file_has_room_for_are_all_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("judged_tables.key_files", "output.judged_tables"):
        monkeypatch.setattr(f"reconciler.audit.{module}.ROWS_A_GROUP", 5)
    audit(day(0).write(tmp_path / "evidence"), tmp_path / "tables")
    (path,) = (tmp_path / "tables" / KEYS).iterdir()
    assert pq.ParquetFile(path).metadata.num_row_groups > 1
    assert len(rows_of(tmp_path / "tables")[KEYS]) == 12


def test_a_result_names_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evidence = day(0).write(tmp_path / "evidence")
    asked = ["audit", "--engine", "here", "--evidence", str(evidence), "--out", str(tmp_path / "out"), "-o", "json"]
    assert main(asked) == 1
    assert json.loads(capsys.readouterr().out)["run"] is None
    assert main([*asked, "--tables", str(tmp_path / "tables")]) == 1
    run = json.loads(capsys.readouterr().out)["run"]
    assert {row["run"] for row in pq.read_table(tmp_path / "tables" / RUNS).to_pylist()} == {run}
