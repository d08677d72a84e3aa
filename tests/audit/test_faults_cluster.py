"""On a standalone cluster the submitted audit gives the same bytes, also if an executor is killed in the middle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.engines.package import write_package
from reconciler.audit.result.times import time_text
from tests.audit.asked_options import settings_of
from tests.audit.audit_process import MODULE, RunningAudit, audit
from tests.audit.full_disk import require_small_disks
from tests.audit.judged_tables import rows_of
from tests.audit.spark_cluster import SparkCluster
from tests.ended import Ended
from tests.polling import eventually
from tests.services.requirements import require, spark_missing
from tests.settings_file import settings_file

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

ACCIDENTS = {"LOST": 5, "EFFECT_WITHOUT_COMMIT": 3, "EFFECT_LATE": 4, "QUARANTINED": 2}
#: What outbox and inbox alone show; without the ledger what is quarantined is lost, too.
FOUND_IN_TABLES = ("EFFECT_WITHOUT_COMMIT", "EFFECT_LATE")


@pytest.fixture(scope="module")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is another one for the executors."""
    return tmp_path_factory.mktemp("unseen")


@pytest.fixture(scope="module")
def cluster(unseen: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    require(spark_missing())
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark", workers=2, hidden=unseen) as running:
        yield running


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=2_000, seed=5, accidents=ACCIDENTS), folder)
    return folder


def submitted(cluster: SparkCluster, generated: Path, tmp_path: Path) -> list[str | Path]:
    archive, script = write_package(tmp_path / "package")
    command: list[str | Path] = [cluster.home / "bin" / "spark-submit", "--master", cluster.url]
    command += ["--py-files", archive, script, "audit", "--evidence", generated]
    return [*command, "--out", tmp_path / "out", "--tables", tmp_path / "tables", "--output", "json"]


def require_answer(ended: Ended, generated: Path, out: Path) -> None:
    assert ended.exit_code == 1, ended.stderr[-3000:]
    planted = json.loads((generated / "planted.json").read_text())
    findings = json.loads((out / "findings.json").read_text())
    for name in ACCIDENTS:
        assert {f["key"] for f in findings if f["class"] == name} == set(planted[name]), name
    assert ended.document["verdict"] == "violations"


def require_tables(tables: Path, out: Path) -> None:
    """What tasks on the executors wrote, and nothing of those that were killed."""
    classes = Counter(row["class"] for row in rows_of(tables)["audit_keys"])
    assert classes == Counter({n: k for n, k in json.loads((out / "result.json").read_text())["classes"].items() if k})
    assert list((tables / "_attempts").iterdir()) == []


def outputs(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def test_a_submitted_audit_gives_the_bytes_of_a_local_one(
    cluster: SparkCluster, generated: Path, tmp_path: Path
) -> None:
    # From a folder without the checkout: what runs is what was submitted.
    with RunningAudit(tmp_path, submitted(cluster, generated, tmp_path), cluster.environment) as running:
        ended = running.ended()
    require_answer(ended, generated, tmp_path / "out")
    require_tables(tmp_path / "tables", tmp_path / "out")
    assert cluster.url in ended.document["engine"]
    local = audit("audit", "--evidence", generated, "--out", tmp_path / "local", "--master", "local[1]")
    assert local.exit_code == 1, local.stderr
    assert outputs(tmp_path / "out") == outputs(tmp_path / "local")


@pytest.mark.nightly
def test_an_audit_ships_itself_to_a_cluster(cluster: SparkCluster, generated: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [
        *MODULE,
        "audit",
        "--evidence",
        generated,
        "--out",
        tmp_path / "out",
        "--output",
        "json",
    ]
    with RunningAudit(tmp_path, [*command, "--master", cluster.url], {"SPARK_LOCAL_IP": "127.0.0.1"}) as running:
        ended = running.ended()
    require_answer(ended, generated, tmp_path / "out")


@pytest.mark.nightly
def test_executors_that_do_not_see_the_evidence_are_told_before_they_work(
    cluster: SparkCluster, generated: Path, unseen: Path, tmp_path: Path
) -> None:
    require_small_disks()
    evidence = Path(shutil.copytree(generated, unseen / "given"))
    asked: list[str | Path] = ["--evidence", evidence, "--out", tmp_path / "out", "--master", cluster.url]
    given = audit("audit", *asked, "--output", "json", environment={"SPARK_LOCAL_IP": "127.0.0.1"})
    assert (given.exit_code, given.document["reason"]) == (2, "engine"), given.stderr[-3000:]
    assert f"on {socket.gethostname()} does not see {evidence} as the driver does" in given.document["message"]

    # No server answers there: a database that was asked would be the reason.
    settings = settings_file(tmp_path, "unique_key_topic.queues = 1")
    nowhere = "postgresql://auditor@127.0.0.1:9/nowhere"
    asked = ["--window", "2026-03-01T00:00Z/2026-03-02T00:00Z", "--subscriptions", settings, "--no-history"]
    asked += ["--outbox", f"shop={nowhere}", "--inbox", f"ORDERS/billing={nowhere}"]
    asked += ["--out", unseen / "out", "--master", cluster.url, "--output", "json"]
    collected = audit("audit", *asked, environment={"SPARK_LOCAL_IP": "127.0.0.1"})
    assert (collected.exit_code, collected.document["reason"]) == (2, "engine"), collected.stderr[-3000:]
    assert f"on {socket.gethostname()} does not see {unseen}/.out.partial-evidence-" in collected.document["message"]
    assert [path.name for path in unseen.iterdir()] == ["given"]


@pytest.mark.nightly
def test_executors_that_lack_a_package_are_told_before_they_work(
    cluster: SparkCluster, generated: Path, tmp_path: Path
) -> None:
    """Their Python is the one that this environment was made from."""
    bare = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    asked: list[str | Path] = ["--evidence", generated, "--out", tmp_path / "out", "--master", cluster.url]
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(bare), "PYSPARK_DRIVER_PYTHON": sys.executable}
    ended = audit("audit", *asked, "--output", "json", environment=environment)
    assert (ended.exit_code, ended.document["reason"]) == (2, "configuration"), ended.stderr[-3000:]
    assert f"pyarrow on {socket.gethostname()}" in ended.document["message"]
    assert not (tmp_path / "out").exists()


def ended_without_an_executor(cluster: SparkCluster, command: Sequence[str | Path], folder: Path) -> Ended:
    """An audit, one of whose executors is killed in the middle."""
    eventually(lambda: not cluster.executors(), within_seconds=120, message="those of earlier audits have ended")
    with RunningAudit(folder, command, cluster.environment) as running:

        def in_the_middle() -> list[int]:
            running.require_running()
            return cluster.executors()

        os.kill(eventually(in_the_middle, within_seconds=600, message="an executor runs tasks")[0], signal.SIGKILL)
        return running.ended()


@pytest.mark.nightly
def test_an_executor_killed_in_the_middle_changes_nothing(
    cluster: SparkCluster, generated: Path, tmp_path: Path
) -> None:
    ended = ended_without_an_executor(cluster, submitted(cluster, generated, tmp_path), tmp_path)
    if ended.exit_code == 2:  # Spark may give up; it must say so
        assert (ended.document["verdict"], ended.document["reason"]) == ("no answer", "engine")
        assert not (tmp_path / "out").exists()
        assert [path for path in (tmp_path / "tables").rglob("*") if path.is_file()] == []
    else:
        require_answer(ended, generated, tmp_path / "out")
        require_tables(tmp_path / "tables", tmp_path / "out")


def job(cluster: SparkCluster, generated: Path, folder: Path) -> list[str]:
    """The function, on a session of somebody's own."""
    asked = json.loads((generated / "evidence.json").read_text())
    settings = folder / "reconciler.toml"
    settings.write_text(settings_of(asked))
    given = {
        "master": cluster.url,
        "lake": str(generated),
        "settings": str(settings),
        "window": "/".join(time_text(asked["window"][name]) for name in ("start_ms", "end_ms")),
        "subscriptions": [(one["topic"], one["group"]) for one in asked["subscriptions"]],
        "producers": asked["outboxes"],
        "folder": str(folder),
    }
    return [sys.executable, "-m", "tests.audit.job_on_cluster", json.dumps(given)]


def test_an_executor_killed_under_the_function_changes_neither_answer_nor_session(
    cluster: SparkCluster, generated: Path, tmp_path: Path
) -> None:
    ended = ended_without_an_executor(cluster, job(cluster, generated, tmp_path), tmp_path)
    assert ended.exit_code == 0, ended.stderr[-3000:]
    told = ended.document
    assert (told["changed"], told["works"]) == ([], True), "the session is somebody else's"
    assert list((tmp_path / "staging").iterdir()) == []
    if told["verdict"] == "no answer":  # Spark may give up; it must say so
        assert told["reason"] == "engine", told
    else:
        planted = json.loads((generated / "planted.json").read_text())
        assert {name: told["classes"][name] for name in FOUND_IN_TABLES} == {
            name: len(planted[name]) for name in FOUND_IN_TABLES
        }
        require_tables(tmp_path / "tables", next(path.parent for path in (tmp_path / "out").glob("*/result.json")))


@pytest.mark.nightly
def test_executors_that_lack_a_package_are_told_under_the_function(
    cluster: SparkCluster, generated: Path, tmp_path: Path
) -> None:
    bare = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    environment = {**cluster.environment, "PYSPARK_PYTHON": str(bare)}
    with RunningAudit(tmp_path, job(cluster, generated, tmp_path), environment) as running:
        ended = running.ended()
    told = ended.document
    assert (told["verdict"], told["reason"]) == ("no answer", "configuration"), told
    assert f"pyarrow on {socket.gethostname()}" in told["message"]
    assert "the extra audit-here" in told["message"]
    assert (told["changed"], told["works"]) == ([], True)
