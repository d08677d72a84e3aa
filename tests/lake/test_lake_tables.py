"""The judged tables in Iceberg and Delta tables: the rows of the folder, and exactly one window replaced.

In an environment of its own (`make test-lake`): neither format runs on the PySpark of the locks.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from reconciler.audit import platform
from reconciler.audit.engines.lake_tables import TableFormat, _Load, load_run
from reconciler.audit.engines.table_versions import TableState, read_table
from reconciler.audit.errors import AuditError
from reconciler.audit.judged_tables.schema import COLUMNS, KEYS, RUNS
from tests.audit.judged_tables import audit, day
from tests.audit.small_evidence import GROUP
from tests.audit.spark_connect import connect_server, connected
from tests.brokers.jars import lake_jars
from tests.services.requirements import downloaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriterV2, SparkSession

try:
    PYSPARK = importlib.metadata.version("pyspark")
except importlib.metadata.PackageNotFoundError:
    PYSPARK = "none"
#: That these formats have artifacts for.
SUPPORTED = "4.1."

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    # Sockets that PySpark 4.1 leaves to the collector, and its word on pandas 3.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.skipif(
        not PYSPARK.startswith(SUPPORTED), reason="run by `make test-lake`, in an environment of its own"
    ),
]


def settings(folder: Path) -> Mapping[str, str]:
    jars = sorted(downloaded(lake_jars).glob("*.jar"))
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "Asia/Shanghai",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(folder / "ice"),
    }


@pytest.fixture(scope="module", params=["classic", "connect"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("lake")
    if request.param == "connect":
        with connect_server(folder / "server", settings=settings(folder)) as address, connected(address) as opened:
            yield opened
        return
    from reconciler.audit.engines.spark_session import open_session

    classic = open_session("local[1]", {"spark.driver.memory": "1g", **settings(folder)})
    yield classic
    classic.stop()


@pytest.fixture(params=["iceberg", "delta"])
def kind(request: pytest.FixtureRequest) -> TableFormat:
    found: TableFormat = request.param
    return found


@pytest.fixture
def into(kind: TableFormat, session: SparkSession, request: pytest.FixtureRequest) -> str:
    name = f"{'ice' if kind == 'iceberg' else 'spark_catalog'}.{request.node.originalname}"
    session.sql(f"CREATE NAMESPACE {name}")
    return name


def runs_of(tables: Path) -> list[str]:
    """The valid runs, in the order of their windows."""
    return [
        str(pq.read_table(path, partitioning=None)["run"][0].as_py())
        for path in sorted((tables / RUNS).glob("*.parquet"))
    ]


def runs_of_one_window(folder: Path, *names: str) -> list[str]:
    """A run of the same evidence in the tables of each of these folders."""
    evidence = day(0).write(folder / "day")
    for name in names:
        audit(evidence, folder / name)
    return [run for name in names for run in runs_of(folder / name)]


def valid_rows(session: SparkSession, tables: Path | str, into: str | None = None) -> dict[str, list[str]]:
    """Of each table, of the folder or of the catalogue, in one order."""
    names = {table: f"{into}.{table}" if into else f"parquet.`{tables}/{table}`" for table in COLUMNS}
    found: dict[str, list[str]] = {}
    for table in COLUMNS:
        valid = "" if table == RUNS else f"JOIN {names[RUNS]} AS runs USING (run, topic, consumer_group)"
        columns = ", ".join(f"found.`{column.name}`" for column in COLUMNS[table])
        rows = session.sql(f"SELECT {columns} FROM {names[table]} AS found {valid}").collect()
        found[table] = sorted(map(str, rows))
    assert found[KEYS]
    return found


def all_runs(session: SparkSession, into: str) -> set[str]:
    """Of the keys, whether valid or not."""
    return {row["run"] for row in session.table(f"{into}.{KEYS}").select("run").distinct().collect()}


@pytest.mark.set_up(
    "judged tables in Iceberg 1.12.0 and Delta 4.4.0 tables, PySpark 4.1.4, classic and over Spark Connect"
)
def test_each_window_is_there_once_and_no_other_is_touched(
    session: SparkSession, kind: TableFormat, into: str, tmp_path: Path
) -> None:
    """Two windows of one day, with two groups each; the first one twice."""
    tables = tmp_path / "tables"
    for number in range(2):
        audit(day(number, (GROUP, "shipping"), 3_600_000).write(tmp_path / f"hour-{number}"), tables)
    first, second = runs_of(tables)
    for run in (first, second):
        load_run(session, tables, run, into=into, kind=kind)
    assert valid_rows(session, tables, into) == valid_rows(session, tables)

    audit(tmp_path / "hour-0", tables)
    (again, still) = runs_of(tables)
    load_run(session, tables, again, into=into, kind=kind)
    assert valid_rows(session, tables, into) == valid_rows(session, tables)
    assert still == second
    assert all_runs(session, into) == {again, second}, "what was replaced is gone"
    files = session.sql(f"SELECT DISTINCT input_file_name() AS file, window_start FROM {into}.{KEYS}").collect()
    assert len({row["file"] for row in files}) == len(files), "a file holds one window"

    load_run(session, tables, again, into=into, kind=kind)
    assert valid_rows(session, tables, into) == valid_rows(session, tables), "a run may be loaded twice"


def test_a_run_that_died_between_tables_is_not_seen_and_the_older_one_is(
    session: SparkSession, kind: TableFormat, into: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = runs_of_one_window(tmp_path, "older", "newer")
    load_run(session, tmp_path / "older", older, into=into, kind=kind)
    replace = _Load._replace

    class Died(BaseException):
        pass

    for writes in range(4):  # the last time when all is written but audit_runs
        done: list[str] = []

        def dies(load: _Load, table: str, *given: Any, most: int = writes, done: list[str] = done) -> None:
            if len(done) == most:
                raise Died
            replace(load, table, *given)
            done.append(table)

        def dies_before(load: _Load, *_: Any) -> None:
            raise Died

        with monkeypatch.context() as patched:
            patched.setattr(_Load, "_replace", dies)
            patched.setattr(_Load, "_make_valid", dies_before)
            with pytest.raises(Died):
                load_run(session, tmp_path / "newer", newer, into=into, kind=kind)
        assert len(done) == writes
        assert valid_rows(session, tmp_path, into) == valid_rows(session, tmp_path / "older")
    assert all_runs(session, into) == {older, newer}

    load_run(session, tmp_path / "newer", newer, into=into, kind=kind)
    assert valid_rows(session, tmp_path, into) == valid_rows(session, tmp_path / "newer")
    assert all_runs(session, into) == {newer}


def test_of_two_runs_of_one_window_the_one_that_is_late_loses_and_says_so(
    session: SparkSession, kind: TableFormat, into: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = runs_of_one_window(tmp_path, "mine", "theirs")
    make_valid = _Load._make_valid

    def after_theirs(load: _Load, *given: Any) -> None:
        if load._run == mine:
            load_run(session, tmp_path / "theirs", theirs, into=into, kind=kind)
        make_valid(load, *given)

    with monkeypatch.context() as patched:
        patched.setattr(_Load, "_make_valid", after_theirs)
        with pytest.raises(AuditError, match=f"another run of the window became valid while run {mine} was loaded"):
            load_run(session, tmp_path / "mine", mine, into=into, kind=kind)
    assert valid_rows(session, tmp_path, into) == valid_rows(session, tmp_path / "theirs")

    load_run(session, tmp_path / "mine", mine, into=into, kind=kind)
    assert valid_rows(session, tmp_path, into) == valid_rows(session, tmp_path / "mine")
    assert all_runs(session, into) == {mine}


def test_of_two_runs_that_become_valid_in_the_same_instant_one_does(
    session: SparkSession, kind: TableFormat, into: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, *later = runs_of_one_window(tmp_path, "earlier", "mine", "theirs")
    runs = dict(zip(("mine", "theirs"), later, strict=True))
    load_run(session, tmp_path / "earlier", earlier, into=into, kind=kind)
    make_valid = _Load._make_valid
    both = Barrier(2)

    def at_once(load: _Load, *given: Any) -> None:
        both.wait(timeout=600)
        make_valid(load, *given)

    def told(name: str) -> str:
        try:
            load_run(session, tmp_path / name, runs[name], into=into, kind=kind)
        except AuditError as error:
            return str(error)
        return ""

    monkeypatch.setattr(_Load, "_make_valid", at_once)
    with ThreadPoolExecutor(2) as threads:
        errors = dict(zip(runs, threads.map(told, runs), strict=True))
    assert ["another run of the window" in error for error in sorted(errors.values())] == [False, True], errors
    (valid,) = (name for name, error in errors.items() if not error)
    assert valid_rows(session, tmp_path, into) == valid_rows(session, tmp_path / valid)


def test_a_table_is_read_in_the_state_that_is_told(session: SparkSession, kind: TableFormat, into: str) -> None:
    table = f"{into}.outbox"

    def keys(read: TableState) -> list[str]:
        return sorted(row["key"] for row in read.rows.collect())

    def with_key(key: str) -> DataFrameWriterV2:
        return session.createDataFrame([{"key": key}]).writeTo(table)

    with_key("a").using(kind).create()
    first = read_table(session, table)
    with_key("b").append()
    second = read_table(session, table)
    before = session.catalog.currentCatalog(), session.catalog.currentDatabase()
    session.sql(f"USE {into}")
    try:
        assert read_table(session, "outbox").version == second.version, "a name of one part"
    finally:
        session.sql(f"USE {'.'.join(before)}")
    with_key("c").append()
    assert (keys(first), keys(second)) == (["a"], ["a", "b"])
    assert (first.format, second.format) == (kind, kind)
    then = session.sql(f"SELECT key FROM {table} VERSION AS OF {first.version}")
    assert [row["key"] for row in then.collect()] == ["a"]

    session.sql(f"ALTER TABLE {table} ADD COLUMNS (incomplete INT)")
    wider = read_table(session, table)
    assert (wider.rows.columns, keys(wider)) == (["key", "incomplete"], ["a", "b", "c"])
    assert (wider.version is None) == (kind == "iceberg"), "its newest snapshot has not the column"


def test_tables_of_a_catalogue_are_audited_into_tables_of_it(
    session: SparkSession, kind: TableFormat, into: str, tmp_path: Path
) -> None:
    """By the functions of the page; one of three messages was lost, and the second window had none."""
    keys = [f"{number:032X}" for number in range(3)]
    message = {"topic": "ORDERS", "content_digest": "0" * 64}
    start_ms = 1_774_656_000_000
    outbox = [
        {**message, "unique_key": key, "producer_group": "shop", "tag": "paid", "business_id": key}
        | {"state": "ANNOUNCED", "created_at_ms": start_ms + 1_000, "announced_at_ms": start_ms + 1_100}
        for key in keys
    ]
    inbox = [
        {**message, "unique_key": key, "consumer_group": "billing", "source": "consumer"}
        | {"applied_at_ms": start_ms + 2_000}
        for key in keys[1:]
    ]
    for name, rows in {"outbox": outbox, "inbox": inbox}.items():
        session.createDataFrame(rows).writeTo(f"{into}.{name}").using(kind).create()
    settings = tmp_path / "reconciler.toml"
    settings.write_text(
        'environment = "test"\n[[producers]]\ngroup = "shop"\ntopics = ["ORDERS"]\n'
        '[[subscriptions]]\ntopic = "ORDERS"\ngroup = "billing"\n'
    )
    answers = platform.audit(
        session,
        inputs=platform.Inputs(outbox={"shop": f"{into}.outbox"}, inbox={"ORDERS/billing": f"{into}.inbox"}),
        windows=["2026-03-28T00:00Z/2026-03-29T00:00Z", "2026-03-29T00:00Z/2026-03-30T00:00Z"],
        out=tmp_path / "out",
        staging=tmp_path / "staging",
        settings=settings,
        tables=tmp_path / "tables",
    )
    assert [{name: n for name, n in answer.classes.items() if n} for answer in answers] == [
        {"LOST": 1, "EFFECT_IN_TIME": 2},
        {},
    ]
    read = {name: read_table(session, f"{into}.{name}").version for name in ("inbox", "outbox")}
    versions = [
        {"input": option, "table": f"{into}.{name}", "format": kind, "version": read[name]}
        for option, name in (("inbox ORDERS/billing", "inbox"), ("outbox shop", "outbox"))
    ]
    for path in [*(tmp_path / "out").rglob("evidence.json"), *(tmp_path / "out").rglob("ORDERS--billing.json")]:
        assert json.loads(path.read_bytes())["input_versions"] == versions
    loaded = platform.load_tables(session, answers, tables=tmp_path / "tables", into=into, kind=kind)
    assert [replace(one, loading_seconds=0.0) for one in loaded] == answers
    assert all(one.loading_seconds > 0 for one in loaded)
    assert valid_rows(session, tmp_path, into) == valid_rows(session, tmp_path / "tables")
    (told,) = session.table(f"{into}.{RUNS}").select("input_versions").distinct().collect()
    assert json.loads(told["input_versions"]) == versions
    rows = session.table(f"{into}.{KEYS}").select("key", "class").collect()
    assert {row["key"]: row["class"] for row in rows} == dict(
        zip(keys, ["LOST", "EFFECT_IN_TIME", "EFFECT_IN_TIME"], strict=True)
    )
