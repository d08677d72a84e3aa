"""An executor dies in the middle of reading a database: same evidence, same answer, or none; never half of one.

The reading task is held fast: its query asks for an advisory lock that the test has, after more rows than the task
keeps in memory. So its files are there half, and the database waits for nobody else, when the executor is killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect.writer import WAITING_ROWS
from tests.audit.asked_options import Options, options_of, query_of
from tests.audit.audit_process import MODULE, RunningAudit, audit, is_gone
from tests.audit.audited_databases import Databases, load_databases
from tests.audit.spark_cluster import SparkCluster
from tests.polling import eventually
from tests.services.postgres import PostgresServer
from tests.services.requirements import postgres_missing, require, spark_missing

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sql("postgres"), pytest.mark.timeout(1800)]

ACCIDENTS = {"LOST": 5, "EFFECT_WITHOUT_COMMIT": 3, "DOUBLE_EFFECT": 3}
LOCK = 4_711
#: Files that tell when the databases were read, and what rests on those.
_TELL_THE_TIME = ("result.json", "report.html", "statement/", "evidence/evidence.json")


def held_query(topic: str, group: str) -> str:
    """Effects, each among a thousand rows that add nothing, and then nothing more, once the lock is free."""
    return (
        f"WITH counted AS ({query_of(topic, group)}), "
        "many AS (SELECT message_key, CASE WHEN n = 1 THEN effects ELSE 0 END AS effects "
        f"FROM counted, generate_series(1, {WAITING_ROWS // 250}) AS n ORDER BY 1) "
        "SELECT message_key, effects FROM many UNION ALL "
        f"SELECT message_key, 1 FROM payments WHERE (SELECT pg_advisory_xact_lock_shared({LOCK})) IS NULL"
    )


@dataclass(frozen=True, kw_only=True)
class Held:
    """What both runs ask for, and the database whose lock holds the reader fast."""

    asked: Options
    inbox_url: str

    @contextmanager
    def locked(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.inbox_url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f"SELECT pg_advisory_lock({LOCK})")
            yield connection


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    require(postgres_missing())
    require(spark_missing())
    folder = tmp_path_factory.mktemp("generated") / "evidence"
    generate(Plan(rows=600, seed=21, accidents=ACCIDENTS, topics=1), folder)
    with PostgresServer() as server:
        databases: Databases = load_databases(folder, server.create_database)
        one = databases.asked["subscriptions"][0]
        place = tmp_path_factory.mktemp("asked")
        counted = f"@{place / 'inbox'}#{held_query(one['topic'], one['group'])}"
        asked = options_of(databases, place, effects={f"{one['topic']}/{one['group']}": counted})
        yield Held(asked=asked, inbox_url=databases.inbox_url)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    require(spark_missing())
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark", workers=2) as running:
        yield running


def readers(tmp_path: Path) -> set[int]:
    """Python workers whose files of effects are half."""
    halves = tmp_path.glob(".out.partial-evidence-*/effects/.*.partial")
    return {int(path.name.split(".")[-2]) for path in halves}


def waiting(connection: psycopg.Connection[Any]) -> int:
    """Statements that wait for the lock."""
    sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


def kill_the_reader(running: RunningAudit, cluster: SparkCluster, lock: psycopg.Connection[Any], folder: Path) -> int:
    """Kills the executor whose task has half of its files and waits for the rest; its Python worker's id."""

    def in_the_middle() -> set[int]:
        running.require_running()
        return readers(folder) if waiting(lock) else set()

    (reader,) = eventually(in_the_middle, within_seconds=600, message="a task has read half of the effects")
    os.kill(cluster.executor_of(reader), signal.SIGKILL)
    eventually(lambda: is_gone(reader), within_seconds=60, message="what the executor had started has ended, too")
    return reader


def started(held: Held, cluster: SparkCluster, folder: Path, *more: str) -> RunningAudit:
    command = [*MODULE, "audit", *held.asked, "--out", folder / "out", "--master", cluster.url, *more]
    return RunningAudit(folder, command, {"SPARK_LOCAL_IP": "127.0.0.1"})


def outputs(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.mark.nightly
def test_an_executor_killed_while_it_reads_a_database_changes_no_byte(
    held: Held, cluster: SparkCluster, tmp_path: Path
) -> None:
    with held.locked() as lock, started(held, cluster, tmp_path) as running:
        dead = kill_the_reader(running, cluster, lock, tmp_path)

        def again() -> set[int]:
            running.require_running()
            return readers(tmp_path) - {dead}

        eventually(again, within_seconds=600, message="another executor has come as far")
        lock.execute(f"SELECT pg_advisory_unlock({LOCK})")
        ended = running.ended()
    assert ended.exit_code == 1, ended.stderr[-3000:]
    assert {name: ended.document["classes"][name] for name in ACCIDENTS} == ACCIDENTS

    undisturbed = audit("audit", *held.asked, "--out", tmp_path / "local", "--engine", "here")
    assert undisturbed.exit_code == 1, undisturbed.stderr[-3000:]
    theirs, ours = outputs(tmp_path / "out"), outputs(tmp_path / "local")
    assert theirs.keys() == ours.keys(), "no rest of the dead attempt is taken for evidence"
    assert [p for p in ours if not p.startswith(_TELL_THE_TIME) and ours[p] != theirs[p]] == []


def test_a_reader_that_spark_gives_up_is_no_answer_and_leaves_nothing(
    held: Held, cluster: SparkCluster, tmp_path: Path
) -> None:
    eventually(lambda: not cluster.executors(), within_seconds=120, message="those of earlier audits have ended")
    with (
        held.locked() as lock,
        started(held, cluster, tmp_path, "--spark", "spark.task.maxFailures=1") as running,
    ):
        kill_the_reader(running, cluster, lock, tmp_path)
        ended = running.ended()
    assert (ended.exit_code, ended.document["verdict"], ended.document["reason"]) == (2, "no answer", "engine")
    assert "ExecutorLostFailure" in ended.document["message"], ended.document["message"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".out", "out"))] == []
