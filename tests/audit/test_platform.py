"""The audit as a function on a session that is somebody else's: the command's answer, and the session as it was."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.generate_history import OPTIONS
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit import platform
from reconciler.audit.command import main
from reconciler.audit.cut_copies import CutCopies
from reconciler.audit.engines.spark import mapped
from reconciler.audit.errors import AuditError
from reconciler.audit.platform import Inputs, WindowAnswer, audit, copied_rows, exit_code
from reconciler.audit.result.times import time_text
from reconciler.audit.result.values import Window
from reconciler.audit.statement.keys import make_keys
from reconciler.audit.statement.verify import verify_statements
from tests.audit.asked_options import options_of
from tests.audit.audited_databases import Databases
from tests.audit.delta_exports import LEDGER_TABLES, rows_of
from tests.audit.judged_tables import rows_of as rows_of_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

HOUR_MS = 3_600_000
#: What a window's folder says of its keys.
JUDGED = ("findings.json", "counts.parquet", "volume.json", "latency.json")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake") / "evidence"
    accidents = {name: 3 for name in OPTIONS if name != "PENDING"}
    generate(Plan(rows=600, seed=9, shards=2, topics=1, accidents=accidents, window_seconds=14_400), folder)
    return folder


def written(rows: list[dict[str, Any]], place: Path) -> Path:
    table = pa.Table.from_pylist(rows)
    for number, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            table = table.set_column(number, field.name, pa.nulls(len(rows), pa.string()))
    place.mkdir(parents=True)
    pq.write_table(table, place / "part.parquet")
    return place


class Lake:
    """The tables of a service and its reconciler as a lake has them."""

    def __init__(self, databases: Databases, folder: Path, spark: SparkSession) -> None:
        self.asked = databases.asked
        self.options = options_of(databases, folder)
        self.settings = folder / "reconciler.toml"
        self.window = self.options[self.options.index("--window") + 1]
        of_url = {"outbox": databases.outbox_url, "inbox": databases.inbox_url}
        self.frames: dict[str, DataFrame] = {
            name: spark.read.parquet(str(written(rows_of(url, f"reconciler_{name}"), folder / "lake" / name)))
            for name, url in of_url.items()
        }
        for name in LEDGER_TABLES:
            place = written(rows_of(databases.ledger_url, name), folder / "lake" / name)
            self.frames[name] = spark.read.parquet(str(place))
        payments = rows_of(databases.inbox_url, "payments")
        self.effects: dict[str, DataFrame] = {}
        for number, one in enumerate(self.asked["subscriptions"]):
            of = (one["topic"], one["group"])
            keys = [{"key": r["message_key"]} for r in payments if (r["topic"], r["consumer_group"]) == of]
            place = written(keys, folder / "lake" / f"effects-{number}")
            self.effects["/".join(of)] = spark.read.parquet(str(place))
        self.history = str(databases.history)

    def inputs(self, **others: Any) -> Inputs:
        given = {
            "outbox": dict.fromkeys(self.asked["outboxes"], self.frames["outbox"]),
            "inbox": {f"{s['topic']}/{s['group']}": self.frames["inbox"] for s in self.asked["subscriptions"]},
            "effects": self.effects,
            "candidate": self.frames["reconciler_candidate"],
            "repair": self.frames["reconciler_repair"],
            "rounds": self.frames["reconciler_round"],
            "history": self.history,
        }
        return Inputs(**{**given, **others})


@pytest.fixture
def lake(sqlite: Databases, tmp_path: Path, spark: SparkSession) -> Lake:
    return Lake(sqlite, tmp_path, spark)


def seen(spark: SparkSession) -> Mapping[str, Any]:
    """What a session's owner may notice."""
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    return {
        "settings": dict(spark.conf.getAll),
        "of context": dict(spark.sparkContext.getConf().getAll()),
        "views": sorted((table.name, table.isTemporary) for table in spark.catalog.listTables()),
        "catalog": (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()),
        "catalogs": [catalog.name for catalog in spark.catalog.listCatalogs()],
        "listeners": (
            len(session.listenerManager().listListeners()),
            len(spark.streams._jsqm.listListeners()),
        ),
        "queries": [query.id for query in spark.streams.active],
        "files": sorted(spark.sparkContext.listFiles),
        "archives": sorted(spark.sparkContext.listArchives),
        "job group": spark.sparkContext.getLocalProperty("spark.jobGroup.id"),
        "active": jvm.org.apache.spark.sql.SparkSession.getActiveSession().isDefined(),
        "stopped": spark.sparkContext._jsc.sc().isStopped(),
    }


@contextmanager
def unchanged(spark: SparkSession) -> Iterator[None]:
    """The session of somebody who has a view, a setting and a streaming query of their own."""
    spark.range(3).createOrReplaceTempView("mine")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        before = seen(spark)
        yield
        assert seen(spark) == before
        assert query.isActive
        assert spark.table("mine").count() == 3
    finally:
        query.stop()
        spark.catalog.dropTempView("mine")


@pytest.mark.set_up("the audit on somebody's Spark session, classic, PySpark 4.3.0")
def test_dataframes_have_the_answer_of_the_command_and_the_session_is_as_it_was(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    assert main(["audit", "--engine", "here", *map(str, lake.options), "--out", str(tmp_path / "command")]) == 1
    with unchanged(spark):
        (answer,) = audit(
            spark,
            inputs=lake.inputs(since=time_text(lake.asked["window"]["start_ms"] - 7 * 24 * HOUR_MS)),
            windows=[str(lake.window)],
            out=tmp_path / "out",
            staging=tmp_path / "staging",
            settings=lake.settings,
            tables=tmp_path / "tables",
            keep_staged=True,
        )
    assert answer.out is not None
    assert (answer.verdict, exit_code([answer])) == ("violations", 1)
    assert 0 < answer.judging_seconds < answer.seconds
    assert answer.staging_seconds > 0
    assert answer.whole_copies_because is None
    for name in JUDGED:
        assert (answer.out / name).read_bytes() == (tmp_path / "command" / name).read_bytes(), name
    assert len(list((tmp_path / "staging").rglob("reconciler_outbox/*.parquet"))) == 1, "the copies were to be kept"
    told = json.loads((answer.out / "evidence/evidence.json").read_bytes())["input_versions"]
    kinds = [one["input"].split()[0] for one in told]
    assert {"outbox", "inbox", "effects", "reconciler_candidate", "reconciler_repair", "reconciler_round"} == set(kinds)
    assert {(one["table"], one["format"], one["version"]) for one in told} == {(None, None, None)}
    assert sum(answer.classes.values()) == len(rows_of_tables(tmp_path / "tables")["audit_keys"])


def test_windows_are_answered_in_order_and_chained_and_one_that_cannot_be_believed_says_so(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """The names of tables are those of the session's catalogue; without a history what is not closed has no answer."""
    secret, public, _ = make_keys(tmp_path / "auditor.pem")
    start_ms, end_ms = (lake.asked["window"][name] for name in ("start_ms", "end_ms"))
    middle_ms = (start_ms + end_ms) // 2
    far_ms = end_ms + 10 * 365 * 24 * HOUR_MS
    spans = [(start_ms, middle_ms), (middle_ms, end_ms), (far_ms, far_ms + HOUR_MS)]
    lake.frames["outbox"].createOrReplaceTempView("outbox_of_shop")
    without_marks = lake.frames["inbox"].drop("incomplete")
    try:
        answers = audit(
            spark,
            inputs=lake.inputs(
                outbox=dict.fromkeys(lake.asked["outboxes"], "outbox_of_shop"),
                inbox={f"{s['topic']}/{s['group']}": without_marks for s in lake.asked["subscriptions"]},
                history=None,
            ),
            windows=["/".join(map(time_text, span)) for span in spans],
            out=tmp_path / "out",
            staging=tmp_path / "staging",
            settings=lake.settings,
            signing_key=secret,
        )
    finally:
        spark.catalog.dropTempView("outbox_of_shop")
    assert [answer.window for answer in answers] == [Window(start_ms=s, end_ms=e) for s, e in spans]
    assert [answer.verdict for answer in answers] == ["violations", "violations", "no answer"]
    assert (answers[2].reason, exit_code(answers)) == ("window", 2)
    for number, answer in enumerate(answers, start=1):
        assert answer.out is not None
        told = [json.loads(path.read_bytes()) for path in (answer.out / "statement").glob("*--*.json")]
        assert {one["sequence"] for one in told} == {number}
        assert all("EFFECT_INCOMPLETE" in one["not_checked"] for one in told), "the inbox had no column incomplete"
        named = [of for one in told for of in one["input_versions"] if of["input"].startswith("outbox ")]
        assert {(of["table"], of["format"], of["version"]) for of in named} == {("outbox_of_shop", None, None)}
    assert verify_statements(tmp_path / "out", public).verdict == "verified"


def test_what_cannot_be_audited_is_refused_before_a_window_and_the_session_is_as_it_was(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    refusals: list[tuple[dict[str, Any], str, str]] = [
        ({"outbox": {"shop": "no_such_table"}}, "inputs", "outbox shop: cannot be read"),
        ({"outbox": {"nobody": "parquet:/nowhere"}}, "usage", "no such producer group"),
        ({"inbox": {"ORDERS": "parquet:/nowhere"}}, "usage", "expected TOPIC/GROUP"),
        ({"repair": None}, "usage", "all three, or none"),
        ({"rounds": "parquet:/nowhere"}, "usage", "DataFrames or names of tables"),
        (
            {"since": time_text(lake.asked["window"]["start_ms"])},
            "usage",
            "the window .*Z to .*Z needs rows from .* on, or older",
        ),
    ]
    with unchanged(spark):
        for others, reason, message in refusals:
            with pytest.raises(AuditError, match=message) as refused:
                audit(
                    spark,
                    inputs=lake.inputs(**others),
                    windows=[str(lake.window)],
                    out=tmp_path / "out",
                    staging=tmp_path / "staging",
                    settings=lake.settings,
                )
            assert refused.value.reason == reason
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "staging").glob("*")) == []


@pytest.mark.parametrize("other", ["2026-03-02T00:00Z/2026-03-03T00:00Z", "2026-03-01T00:00Z/2026-03-02T00:00Z"])
def test_windows_that_come_twice_or_too_late_are_named(tmp_path: Path, other: str) -> None:
    windows = ["2026-03-02T00:00Z/2026-03-03T00:00Z", other]
    told = f"the window {other[:10]}T00:00:00.000Z to {other[18:28]}T00:00:00.000Z comes twice or too late"
    with pytest.raises(AuditError, match=told) as refused:
        audit(
            cast("SparkSession", None),  # nothing is asked of it
            inputs=Inputs(outbox={}, inbox={}),
            windows=windows,
            out=tmp_path,
            staging=tmp_path,
            settings=tmp_path,
        )
    assert refused.value.reason == "usage"


def test_only_columns_of_evidence_and_rows_of_the_time_are_read_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"unique_key": f"{number:032X}", "created_at_ms": at_ms, "body": b"long"}
        for number, at_ms in enumerate((1_000, 2_000, 3_000, None))
    ]
    whole = spark.read.parquet(str(written(rows, tmp_path / "outbox")))
    copied = copied_rows(whole, frozenset({"unique_key", "created_at_ms"}), "created_at_ms", 2_000)
    plan: Any = copied._jdf
    scan = next(line for line in plan.queryExecution().executedPlan().toString().splitlines() if "FileScan" in line)
    assert "PushedFilters: [Or(IsNull(created_at_ms),GreaterThanOrEqual(created_at_ms,2000))]" in scan
    assert "ReadSchema: struct<unique_key:string,created_at_ms:bigint>" in scan
    assert sorted(row["created_at_ms"] or 0 for row in copied.collect()) == [0, 2_000, 3_000]


def test_tables_that_were_loaded_before_the_window_closed_are_no_answer(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    (answer,) = audit(
        spark,
        inputs=lake.inputs(loaded_until=time_text(lake.asked["window"]["end_ms"])),
        windows=[str(lake.window)],
        out=tmp_path / "out",
        staging=tmp_path / "staging",
        settings=lake.settings,
    )
    assert (answer.verdict, answer.reason) == ("no answer", "window")


def test_inputs_that_cannot_be_believed_are_no_answer_and_the_session_is_as_it_was(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    with unchanged(spark):
        (answer,) = audit(
            spark,
            inputs=lake.inputs(outbox=dict.fromkeys(lake.asked["outboxes"], lake.frames["outbox"].drop("state"))),
            windows=[str(lake.window)],
            out=tmp_path / "out",
            staging=tmp_path / "staging",
            settings=lake.settings,
        )
    assert (answer.verdict, answer.reason, answer.classes) == ("no answer", "inputs", {})
    assert "has no column state" in str(answer.message)


def test_windows_without_an_answer_have_statements_that_say_so_and_later_ones_follow_them(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    secret, public, _ = make_keys(tmp_path / "auditor.pem")
    start_ms, end_ms = (lake.asked["window"][name] for name in ("start_ms", "end_ms"))
    middle_ms = (start_ms + end_ms) // 2
    first, second = ("/".join(map(time_text, span)) for span in ((start_ms, middle_ms), (middle_ms, end_ms)))

    def audited(windows: list[str], inputs: Inputs, previous: Path | None = None) -> list[WindowAnswer]:
        return audit(
            spark,
            inputs=inputs,
            windows=windows,
            out=tmp_path / "out",
            staging=tmp_path / "staging",
            settings=lake.settings,
            tables=tmp_path / "tables",
            signing_key=secret,
            previous=previous,
        )

    damaged = lake.inputs(outbox=dict.fromkeys(lake.asked["outboxes"], lake.frames["outbox"].drop("state")))
    (refused,) = audited([first], damaged)
    assert refused.judging_seconds == 0
    assert refused.out is not None
    said = [json.loads(path.read_bytes()) for path in (refused.out / "statement").glob("*--*.json")]
    assert {(one["sequence"], one["verdict"], one["no_answer"]["reason"]) for one in said} == {
        (1, "no answer", "inputs")
    }
    assert "Evidence is missing, unreadable or altered" in (refused.out / "report.html").read_text()
    runs = rows_of_tables(tmp_path / "tables")["audit_runs"]
    assert {(row["verdict"], row["reason"]) for row in runs} == {("no answer", "inputs")}

    (found,) = audited([second], lake.inputs(), refused.out)
    assert found.out is not None
    said = [json.loads(path.read_bytes()) for path in (found.out / "statement").glob("*--*.json")]
    assert {(one["sequence"], one["verdict"]) for one in said} == {(2, "violations")}
    assert verify_statements(tmp_path / "out", public).verdict == "verified"

    before = {path: path.read_bytes() for path in found.out.rglob("*") if path.is_file()}
    exports = {name: f"parquet:{tmp_path}/lake/effects-{number}" for number, name in enumerate(lake.effects)}
    again = audited([first, second], replace(damaged, effects=exports))
    whole = f"effects {next(iter(exports))}: an export is read where it lies"
    assert [one.whole_copies_because for one in (refused, found, *again)] == [None, None, whole, whole]
    assert [(one.verdict, one.out) for one in again] == [("no answer", refused.out), ("no answer", None)]
    assert before == {path: path.read_bytes() for path in found.out.rglob("*") if path.is_file()}, "the answer stays"
    assert [one.run is None for one in again] == [False, True]
    kept = {row["verdict"] for row in rows_of_tables(tmp_path / "tables")["audit_runs"]}
    assert kept == {"no answer", "violations"}


@pytest.mark.nightly
@pytest.mark.parametrize("windows", [4, 24])
def test_windows_beside_each_other_over_cut_copies_have_the_answers_of_windows_one_by_one_over_whole_ones(
    spark: SparkSession, lake: Lake, tmp_path: Path, windows: int
) -> None:
    start_ms, end_ms = (lake.asked["window"][name] for name in ("start_ms", "end_ms"))
    cuts = [start_ms + (end_ms - start_ms) * number // windows for number in range(windows + 1)]
    rows: dict[str, int] = {}
    for name, at_once in (("beside", 3), ("one by one", 1)):
        with pytest.MonkeyPatch.context() as patched:
            if name == "one by one":
                patched.setattr(
                    platform,
                    "cut_by_window",
                    lambda _spark, _folder, requests, *_more: CutCopies(requests=requests),
                )
            answers = audit(
                spark,
                inputs=lake.inputs(),
                windows=["/".join(map(time_text, span)) for span in pairwise(cuts)],
                out=tmp_path / name,
                staging=tmp_path / "staging",
                settings=lake.settings,
                tables=tmp_path / f"tables {name}",
                at_once=at_once,
            )
        assert [one.out.name for one in answers if one.out] == sorted(
            path.name for path in (tmp_path / name).iterdir() if path.is_dir()
        )
        found = [json.loads(path.read_bytes())["files"] for path in (tmp_path / name).rglob("evidence.json")]
        rows[name] = sum(file["rows"] for files in found for file in files.values())
    for path in sorted(path for path in (tmp_path / "beside").glob("*/*") if path.name in JUDGED):
        assert path.read_bytes() == (tmp_path / "one by one" / path.parent.name / path.name).read_bytes()
    tables = [rows_of_tables(tmp_path / f"tables {name}") for name in rows]
    for of in tables:  # when and from what it was read
        del of["audit_runs"]
    assert tables[0] == tables[1]
    assert rows["beside"] * windows < rows["one by one"] * 4
    for number, window in enumerate(sorted((tmp_path / "beside").glob("2*")), start=1):
        said = [json.loads(path.read_bytes()) for path in (window / "statement").glob("*--*.json")]
        assert {one["sequence"] for one in said} == {number}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_ninety_windows_in_one_job_some_again_and_a_back_fill_over_all_leave_each_key_once(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """As ninety days; the lake has ninety parts of one window."""
    start_ms, end_ms = (lake.asked["window"][name] for name in ("start_ms", "end_ms"))
    cuts = [start_ms + (end_ms - start_ms) * number // 90 for number in range(91)]
    windows = ["/".join(map(time_text, span)) for span in pairwise(cuts)]

    def audited(some: list[str]) -> list[WindowAnswer]:
        return audit(
            spark,
            inputs=lake.inputs(),
            windows=some,
            out=tmp_path / "out",
            staging=tmp_path / "staging",
            settings=lake.settings,
            tables=tmp_path / "tables",
        )

    def shown() -> dict[str, list[dict[str, Any]]]:
        found = rows_of_tables(tmp_path / "tables")
        for row in found["audit_runs"]:  # when and from what it was read
            row.update(collected_at=None, evidence_sha256=None)
        return found

    answers = audited(windows)
    assert [one.whole_copies_because for one in answers] == [None] * 90
    once = shown()
    of_keys = [(row["topic"], row["consumer_group"], row["key"]) for row in once["audit_keys"]]
    assert len(of_keys) == len(set(of_keys)) == sum(sum(one.classes.values()) for one in answers)
    (whole,) = audit(
        spark,
        inputs=lake.inputs(),
        windows=[str(lake.window)],
        out=tmp_path / "whole",
        staging=tmp_path / "staging",
        settings=lake.settings,
    )
    assert sum(whole.classes.values()) == len(of_keys)
    audited(windows[7:10])
    assert shown() == once
    audited(windows)
    assert shown() == once


@contextmanager
def interrupted_when(happens: Callable[[], bool]) -> Iterator[None]:
    """SIGINT to this process, once, which hears it: what a shell starts in the background, as .ci/run does, ignores it
    unless a classic session has set a handler of its own."""

    def watch() -> None:
        while not over.is_set():
            if happens():
                os.kill(os.getpid(), signal.SIGINT)
                return
            over.wait(0.02)

    over = threading.Event()
    watching = threading.Thread(target=watch)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    watching.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        over.set()
        watching.join()
        signal.signal(signal.SIGINT, before)


def audit_interrupted(spark: SparkSession, lake: Lake, folder: Path, place: str) -> None:
    """An audit gets SIGINT while it is at this place; nothing of it is left in its folders and threads."""
    outbox = lake.frames["outbox"]
    held = folder / "held"

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held.touch()
        time.sleep(300)  # for as long as nobody ends the job
        yield from batches

    if place == "staging":
        outbox = mapped(outbox, hold, outbox.schema.simpleString())
    begun = {
        "staging": held.exists,
        "judging": lambda: any((folder / "out").glob(".*partial-evidence-*/outbox/*")),
    }[place]
    with interrupted_when(begun):
        audit(
            spark,
            inputs=lake.inputs(outbox=dict.fromkeys(lake.asked["outboxes"], outbox)),
            windows=[str(lake.window)],
            out=folder / "out",
            staging=folder / "staging",
            settings=lake.settings,
        )
    assert list((folder / "staging").iterdir()) == []
    assert [path.name for path in (folder / "out").glob("*") if path.suffix != ".lock"] == []
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("reconciler-audit")] == []


@pytest.mark.parametrize("place", ["staging", "judging"])
def test_an_interrupted_audit_ends_its_jobs_and_leaves_the_session_as_it_was(
    spark: SparkSession, lake: Lake, tmp_path: Path, place: str
) -> None:
    with unchanged(spark):
        audit_interrupted(spark, lake, tmp_path, place)


def test_the_worst_answer_is_the_exit_code() -> None:
    def answer(verdict: str) -> WindowAnswer:
        window = Window(start_ms=0, end_ms=1)
        return WindowAnswer(
            window=window,
            verdict=verdict,
            reason=None,
            message=None,
            classes={},
            violations=0,
            out=None,
            run=None,
            seconds=0.0,
            staging_seconds=0.0,
        )

    clean, violations, none = map(answer, ("clean", "violations", "no answer"))
    assert [exit_code(some) for some in ([clean], [violations, clean], [clean, none, violations], [])] == [0, 1, 2, 2]
