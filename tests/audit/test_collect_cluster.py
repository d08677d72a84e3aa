"""Beside a standalone cluster the driver reads PostgreSQL, and executors read Delta tables: the bytes of a
local run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.engines.package import write_package
from tests.audit.asked_options import Options, options_of
from tests.audit.audit_process import RunningAudit, audit
from tests.audit.audited_databases import Databases, load_databases
from tests.audit.delta_exports import write_effects, write_exports
from tests.audit.spark_cluster import SparkCluster
from tests.ended import Ended
from tests.services.postgres import PostgresServer
from tests.services.requirements import postgres_missing, require, spark_missing

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sql("postgres"), pytest.mark.timeout(1800)]

ACCIDENTS = {"LOST": 5, "EFFECT_WITHOUT_COMMIT": 3, "DOUBLE_EFFECT": 3, "EFFECT_LATE": 4, "QUARANTINED": 2}
#: Files that tell when the databases were read, and what rests on those.
_TELL_THE_TIME = ("result.json", "report.html", "statement/", "evidence/evidence.json")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=600, seed=9, accidents=ACCIDENTS, topics=1, window_seconds=14_400), folder)
    return folder


@pytest.fixture(scope="module")
def databases(generated: Path) -> Iterator[Databases]:
    require(postgres_missing())
    with PostgresServer() as server:
        yield load_databases(generated, server.create_database)


@pytest.fixture(scope="module")
def asked(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Options:
    return options_of(databases, tmp_path_factory.mktemp("asked"))


def outputs(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    require(spark_missing())
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark", workers=2) as running:
        yield running


def submitted(cluster: SparkCluster, tmp_path: Path, asked: Options) -> Ended:
    archive, script = write_package(tmp_path / "package")
    command: list[str | Path] = [cluster.home / "bin" / "spark-submit", "--master", cluster.url]
    command += ["--py-files", archive, script, "audit", *asked, "--out", tmp_path / "out"]
    with RunningAudit(tmp_path, command, cluster.environment) as running:
        return running.ended()


def require_the_planted(ended: Ended, cluster: SparkCluster, generated: Path) -> None:
    assert ended.exit_code == 1, ended.stderr[-3000:]
    assert cluster.url in ended.document["engine"]
    planted = json.loads((generated / "planted.json").read_text())
    counts: dict[str, Any] = ended.document["classes"]
    assert {name: counts[name] for name in ACCIDENTS} == {name: len(planted[name]) for name in ACCIDENTS}


def require_the_bytes_of_a_local_run(tmp_path: Path, asked: Options) -> None:
    local = audit("audit", *asked, "--out", tmp_path / "local", "--engine", "here")
    assert local.exit_code == 1, local.stderr[-3000:]
    ours, theirs = outputs(tmp_path / "local"), outputs(tmp_path / "out")
    assert ours.keys() == theirs.keys()
    assert [p for p in ours if not p.startswith(_TELL_THE_TIME) and ours[p] != theirs[p]] == []


@pytest.mark.nightly
def test_databases_read_beside_a_cluster_give_the_bytes_of_a_local_run(
    cluster: SparkCluster, asked: Options, generated: Path, tmp_path: Path
) -> None:
    require_the_planted(submitted(cluster, tmp_path, asked), cluster, generated)
    theirs = outputs(tmp_path / "out")
    require_the_bytes_of_a_local_run(tmp_path, asked)

    # Of one collection every byte is the same, those that tell its time too.
    again: Options = ["--evidence", tmp_path / "out" / "evidence", "--out", tmp_path / "again"]
    assert audit("audit", *again, "--master", "local[1]").exit_code == 1
    kept = {path: data for path, data in theirs.items() if not path.startswith("evidence/")}
    assert outputs(tmp_path / "again") == kept


@pytest.mark.nightly
def test_delta_tables_read_by_executors_give_the_bytes_of_a_local_run(
    cluster: SparkCluster, databases: Databases, generated: Path, tmp_path: Path
) -> None:
    exports = tmp_path / "exports"
    write_exports(databases, exports)
    (one,) = databases.asked["subscriptions"]
    write_effects(databases, exports / "effects", one["topic"], one["group"])
    (tmp_path / "asked").mkdir()
    asked = options_of(
        databases,
        tmp_path / "asked",
        places={name: f"delta:{exports / name}" for name in ("outbox", "inbox", "ledger")},
        effects={f"{one['topic']}/{one['group']}": f"delta:{exports / 'effects'}"},
    )
    for name in ("outbox", "inbox", "ledger"):
        (tmp_path / "asked" / name).write_text("sqlite:////nowhere")  # no database is asked beside the exports
    require_the_planted(submitted(cluster, tmp_path, asked), cluster, generated)
    require_the_bytes_of_a_local_run(tmp_path, asked)
