"""Executors of a standalone cluster read PostgreSQL in ranges: evidence and answer of a local run, byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.output.documents import time_text
from reconciler.audit.package import write_package
from tests.audit.audit_process import RunningAudit, audit
from tests.audit.audited_databases import Databases, load_databases
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
    generate(Plan(rows=600, seed=9, accidents=ACCIDENTS, topics=1), folder)
    return folder


@pytest.fixture(scope="module")
def databases(generated: Path) -> Iterator[Databases]:
    require(postgres_missing())
    with PostgresServer() as server:
        yield load_databases(generated, server.create_database)


@pytest.fixture(scope="module")
def asked(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """Options of both runs; URLs in files, as users are told to give them."""
    folder = tmp_path_factory.mktemp("asked")
    for name, url in (("o", databases.outbox_url), ("i", databases.inbox_url), ("l", databases.ledger_url)):
        (folder / name).write_text(url)
    document = databases.asked
    lines = [f'environment = "{document["environment"]}"', "[unique_key_topic]", f"queues = {document['shards']}"]
    options: list[str | Path] = ["--ledger", f"@{folder}/l", "--history", databases.history]
    for one in document["subscriptions"]:
        name = f"{one['topic']}/{one['group']}"
        tags = "*" if one["tags"] is None else " || ".join(one["tags"])
        lines += ["[[subscriptions]]", f'topic = "{one["topic"]}"', f'group = "{one["group"]}"', f'tags = "{tags}"']
        lines += [f"{key} = {one[key]}" for key in ("grace_period_seconds", "late_after_seconds")]
        query = f"SELECT message_key, count(*) FROM payments WHERE topic = '{one['topic']}' AND consumer_group = "
        options += ["--inbox", f"{name}=@{folder}/i"]
        options += ["--effects", f"{name}=@{folder}/i#{query}'{one['group']}' GROUP BY message_key ORDER BY 1"]
    for group in document["outboxes"]:
        topics = sorted({s["topic"] for s in document["subscriptions"] if group in s["producer_groups"]})
        lines += ["[[producers]]", f'group = "{group}"', f"topics = {json.dumps(topics)}"]
        options += ["--outbox", f"{group}=@{folder}/o"]
    (folder / "reconciler.toml").write_text("\n".join(lines) + "\n")
    window = document["window"]
    window_text = "/".join(time_text(window[name]) for name in ("start_ms", "end_ms"))
    return [*options, "--subscriptions", folder / "reconciler.toml", "--window", window_text, "--output", "json"]


def outputs(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def submitted(tmp_path: Path, asked: list[str | Path]) -> tuple[Ended, str]:
    with SparkCluster(tmp_path / "spark", workers=2) as cluster:
        archive, script = write_package(tmp_path / "package")
        command: list[str | Path] = [cluster.home / "bin" / "spark-submit", "--master", cluster.url]
        command += ["--py-files", archive, script, "audit", *asked, "--out", tmp_path / "out"]
        with RunningAudit(tmp_path, command, cluster.environment) as running:
            return running.ended(), cluster.url


def test_databases_read_by_executors_give_the_bytes_of_a_local_run(
    asked: list[str | Path], generated: Path, tmp_path: Path
) -> None:
    require(spark_missing())
    ended, url = submitted(tmp_path, asked)
    assert ended.exit_code == 1, ended.stderr[-3000:]
    assert url in ended.document["engine"]
    planted = json.loads((generated / "planted.json").read_text())
    counts: dict[str, Any] = ended.document["classes"]
    assert {name: counts[name] for name in ACCIDENTS} == {name: len(planted[name]) for name in ACCIDENTS}
    theirs = outputs(tmp_path / "out")
    assert len({path.rsplit("/", 1)[1] for path in theirs if path.startswith("evidence/outbox/")}) > 3, "in ranges"

    local = audit("audit", *asked, "--out", tmp_path / "local", "--master", "local[1]")
    assert local.exit_code == 1, local.stderr[-3000:]
    ours = outputs(tmp_path / "local")
    assert ours.keys() == theirs.keys()
    assert [p for p in ours if not p.startswith(_TELL_THE_TIME) and ours[p] != theirs[p]] == []

    # Of one collection every byte is the same, those that tell its time too.
    again: list[str | Path] = ["--evidence", tmp_path / "out" / "evidence", "--out", tmp_path / "again"]
    assert audit("audit", *again, "--master", "local[1]").exit_code == 1
    kept = {path: data for path, data in theirs.items() if not path.startswith("evidence/")}
    assert outputs(tmp_path / "again") == kept
