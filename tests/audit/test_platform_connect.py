"""The audit as a function over Spark Connect: the answer of a classic session, and the session as it was.

What a session's Python lacks is told of each kind of session.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.generate_history import OPTIONS
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.command import main
from reconciler.audit.engines.spark import require_seen
from reconciler.audit.errors import AuditError
from reconciler.audit.platform import audit, exit_code
from reconciler.audit.result.times import time_text
from tests.audit.audited_databases import Databases
from tests.audit.judged_tables import rows_of as rows_of_tables
from tests.audit.spark_connect import connect_server, connected
from tests.audit.test_platform import Lake, audit_interrupted
from tests.services.requirements import connect_missing, require, spark_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.xdist_group("spark_connect")]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake") / "evidence"
    accidents = {name: 3 for name in OPTIONS if name != "PENDING"}
    generate(Plan(rows=600, seed=9, shards=2, topics=1, accidents=accidents, window_seconds=14_400), folder)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require(spark_missing())
    require(connect_missing())
    with connect_server(tmp_path_factory.mktemp("connect") / "server") as address:
        yield address


@pytest.fixture
def session(server: str) -> Iterator[SparkSession]:
    with connected(server) as opened:
        yield opened


@pytest.fixture
def lake(sqlite: Databases, tmp_path: Path, session: SparkSession) -> Lake:
    return Lake(sqlite, tmp_path, session)


def seen(session: SparkSession) -> Mapping[str, Any]:
    """What a session's owner may notice."""
    client: Any = session.client
    return {
        "settings": dict(session.conf.getAll),
        "views": sorted((table.name, table.isTemporary) for table in session.catalog.listTables()),
        "catalog": (session.catalog.currentCatalog(), session.catalog.currentDatabase()),
        "catalogs": [catalog.name for catalog in session.catalog.listCatalogs()],
        "queries": [query.id for query in session.streams.active],
        "progress": list(client._progress_handlers),
        "added": [session.sql(f"LIST {kind}").collect() for kind in ("FILES", "JARS", "ARCHIVES")],
        "tags": session.getTags(),
    }


@contextmanager
def unchanged(session: SparkSession) -> Iterator[None]:
    """The session of somebody who has a view, a setting, a streaming query and a progress handler of their own."""

    def mine(**_seen: Any) -> None:
        """Somebody's own."""

    session.range(3).createOrReplaceTempView("mine")
    session.conf.set("spark.sql.shuffle.partitions", "3")
    session.registerProgressHandler(mine)  # type: ignore[arg-type]
    query = session.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        before = seen(session)
        yield
        assert seen(session) == before
        assert query.isActive
        assert session.table("mine").count() == 3
    finally:
        query.stop()


@pytest.mark.set_up("the audit on somebody's Spark session, over Spark Connect, PySpark 4.3.0")
def test_a_connect_session_has_the_answer_of_the_command_and_is_as_it_was(
    session: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """DataFrames and a name; the command's bytes, as a classic session has them."""
    assert main(["audit", "--engine", "here", *map(str, lake.options), "--out", str(tmp_path / "command")]) == 1
    lake.frames["outbox"].createOrReplaceTempView("outbox_of_shop")
    with unchanged(session):
        (answer,) = audit(
            session,
            inputs=lake.inputs(outbox=dict.fromkeys(lake.asked["outboxes"], "outbox_of_shop")),
            windows=[str(lake.window)],
            out=tmp_path / "out",
            staging=tmp_path / "staging",
            settings=lake.settings,
            tables=tmp_path / "tables",
        )
    assert answer.out is not None
    assert (answer.verdict, exit_code([answer])) == ("violations", 1)
    for name in ("findings.json", "counts.parquet", "volume.json", "latency.json"):
        assert (answer.out / name).read_bytes() == (tmp_path / "command" / name).read_bytes(), name
    assert list((tmp_path / "staging").iterdir()) == []
    assert sum(answer.classes.values()) == len(rows_of_tables(tmp_path / "tables")["audit_keys"])


@pytest.mark.nightly
def test_a_connect_session_is_as_it_was_after_an_error(session: SparkSession, lake: Lake, tmp_path: Path) -> None:
    with unchanged(session), pytest.raises(AuditError, match="outbox shop: cannot be read") as refused:
        audit(
            session,
            inputs=lake.inputs(outbox={"shop": "no_such_table"}),
            windows=[str(lake.window)],
            out=tmp_path / "out",
            staging=tmp_path / "staging",
            settings=lake.settings,
        )
    assert refused.value.reason == "inputs"
    assert list((tmp_path / "staging").glob("*")) == []


@pytest.mark.parametrize("place", ["staging", pytest.param("judging", marks=pytest.mark.nightly)])
def test_an_interrupted_audit_over_connect_ends_its_operations_and_leaves_the_session_as_it_was(
    session: SparkSession, lake: Lake, tmp_path: Path, place: str
) -> None:
    with unchanged(session):
        audit_interrupted(session, lake, tmp_path, place)
    # Once the streaming query, an operation too, has ended.
    assert session.interruptAll() == [], "an operation of the audit was still running"


@pytest.mark.nightly
def test_windows_over_connect_are_answered_in_order(session: SparkSession, lake: Lake, tmp_path: Path) -> None:
    start_ms, end_ms = (lake.asked["window"][name] for name in ("start_ms", "end_ms"))
    middle_ms = (start_ms + end_ms) // 2
    with unchanged(session):
        answers = audit(
            session,
            inputs=lake.inputs(),
            windows=["/".join(map(time_text, span)) for span in ((start_ms, middle_ms), (middle_ms, end_ms))],
            out=tmp_path / "out",
            staging=tmp_path / "staging",
            settings=lake.settings,
        )
    assert [(answer.window.start_ms, answer.verdict) for answer in answers] == [
        (start_ms, "violations"),
        (middle_ms, "violations"),
    ]


@pytest.mark.nightly
def test_a_server_whose_python_lacks_a_package_is_told_by_host_and_package(sqlite: Databases, tmp_path: Path) -> None:
    """Its tasks run on the Python that this environment was made from."""
    require(spark_missing())
    require(connect_missing())
    bare = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    with connect_server(tmp_path / "server", python=str(bare)) as address, connected(address) as session:
        lake = Lake(sqlite, tmp_path, session)
        with unchanged(session):
            (answer,) = audit(
                session,
                inputs=lake.inputs(),
                windows=[str(lake.window)],
                out=tmp_path / "out",
                staging=tmp_path / "staging",
                settings=lake.settings,
            )
    assert (answer.verdict, answer.reason) == ("no answer", "configuration")
    assert f"pyarrow on {socket.gethostname()}" in str(answer.message)


def test_a_local_session_whose_python_lacks_a_package_is_told_by_host_and_package(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where PYSPARK_PYTHON is not set, and the python3 on PATH is another one."""
    bare = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(AuditError, match=f"pyarrow on {socket.gethostname()}") as refused:
        require_seen(spark, [])
    assert refused.value.reason == "configuration"
