"""Every fault ends in a clear message and exit code 2 or the right answer, and never in "clean"."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from reconciler.contract.evidence_layout import EVIDENCE_VERSION
from reconciler.sql import tables
from tests.audit.audit_process import MODULE, RunningAudit, audit, is_gone
from tests.audit.small_evidence import PRODUCER, START_MS, SmallEvidence, read_document, seal_again, write_document
from tests.ended import Ended
from tests.polling import eventually
from tests.services.postgres import PostgresServer
from tests.services.requirements import postgres_missing, require

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

LOST = bytes(range(16))


def small(folder: Path, *, lost: bool = False) -> Path:
    evidence = SmallEvidence()
    for number in range(5):
        evidence.story(bytes([number + 1]) * 16)
    if lost:
        evidence.add("outbox", LOST)
        evidence.add("announced", LOST)
        evidence.add("candidate", LOST)
    return evidence.write(folder)


def judged(evidence: Path, out: Path) -> Ended:
    return audit("audit", "--evidence", evidence, "--out", out, "--output", "json", "--engine", "here")


def leftovers(out: Path) -> list[str]:
    """What lies beside OUT and belongs to it."""
    return sorted(path.name for path in out.parent.iterdir() if path.name.startswith(f".{out.name}"))


def test_clean_and_violations_and_the_same_bytes_again(tmp_path: Path) -> None:
    clean = judged(small(tmp_path / "clean"), tmp_path / "out")
    assert clean.exit_code == 0, clean.stderr
    assert clean.document["verdict"] == "clean"
    assert clean.document["classes"]["EFFECT_IN_TIME"] == 5
    assert clean.document["engine"] == "here"
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert judged(tmp_path / "clean", tmp_path / "out").exit_code == 0
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert before == after
    lost = judged(small(tmp_path / "lost", lost=True), tmp_path / "out")
    assert lost.exit_code == 1, lost.stderr
    findings = json.loads((tmp_path / "out" / "findings.json").read_text())
    assert [(f["class"], f["key"]) for f in findings] == [("LOST", LOST.hex().upper())]
    assert leftovers(tmp_path / "out") == []


def truncated(folder: Path) -> None:
    path = first(folder)
    path.write_bytes(path.read_bytes()[:-9])


def missing(folder: Path) -> None:
    first(folder).unlink()


def swapped(folder: Path) -> None:
    other = SmallEvidence(start_ms=START_MS - 86_400_000)
    other.story(bytes([1]) * 16, created_at_ms=START_MS - 86_000_000)
    theirs = other.write(folder.parent / "other")
    first(folder).write_bytes(first(theirs).read_bytes())


def older_schema(folder: Path) -> None:
    path = first(folder)
    table = pq.read_table(path, partitioning=None)
    seal_again(folder, str(path.relative_to(folder)), table.drop_columns(["state"]))


def newer_version(folder: Path) -> None:
    write_document(folder, {**read_document(folder), "version": EVIDENCE_VERSION + 1})


def unknown_state(folder: Path) -> None:
    path = first(folder)
    table = pq.read_table(path, partitioning=None)
    place = table.schema.get_field_index("state")
    states = ["FROZEN"] * table.num_rows
    seal_again(folder, str(path.relative_to(folder)), table.set_column(place, "state", [states]))


def first(folder: Path) -> Path:
    return sorted(folder.glob("outbox/*/*.parquet"))[0]


FAULTS: dict[Callable[[Path], None], str] = {
    truncated: "outbox/prefix=",
    missing: "outbox/prefix=",
    swapped: "outbox/prefix=",
    older_schema: "has no column `state`",
    newer_version: f"version {EVIDENCE_VERSION + 1}",
    unknown_state: "'FROZEN'",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_evidence_that_cannot_be_believed_gives_no_answer(fault: Callable[[Path], None], tmp_path: Path) -> None:
    evidence = small(tmp_path / "evidence")
    fault(evidence)
    ended = judged(evidence, tmp_path / "out")
    assert ended.exit_code == 2, ended.stdout
    assert (ended.document["verdict"], ended.document["reason"]) == ("no answer", "inputs")
    assert FAULTS[fault] in ended.document["message"]
    assert not (tmp_path / "out").exists()
    assert leftovers(tmp_path / "out") == []


def test_a_gap_withholds_the_verdict_and_shows_what_was_found(tmp_path: Path) -> None:
    evidence = SmallEvidence()
    evidence.story(bytes([1]) * 16)
    evidence.add("gap")
    ended = judged(evidence.write(tmp_path / "evidence"), tmp_path / "out")
    assert ended.exit_code == 2, ended.stderr
    assert (ended.document["verdict"], ended.document["reason"]) == ("no answer", "gap")
    assert ended.document["gaps"] == 1
    assert (tmp_path / "out" / "report.html").is_file()


def test_sigint_ends_the_audit_and_its_jvm(tmp_path: Path) -> None:
    command: list[str | Path] = [
        *MODULE,
        "audit",
        "--evidence",
        small(tmp_path / "evidence"),
        "--out",
        tmp_path / "out",
    ]
    with RunningAudit(tmp_path, command) as running:
        jvm = running.jvm()
        running.process.send_signal(signal.SIGINT)
        ended = running.ended()
    assert ended.exit_code == 130, ended.stderr
    eventually(lambda: is_gone(jvm), within_seconds=60, message="the JVM has ended")
    assert "interrupted" in ended.stderr
    assert not (tmp_path / "out").exists()
    assert leftovers(tmp_path / "out") == []


def settings(folder: Path, urls: str) -> Path:
    path = folder / "reconciler.toml"
    path.write_text(
        f"""environment = "test"
[unique_key_topic]
queues = 1
[[producers]]
group = "{PRODUCER}"
topics = ["ORDERS"]
{urls}
[[subscriptions]]
topic = "ORDERS"
group = "billing"
"""
    )
    return path


@pytest.mark.sql("postgres")
def test_a_database_that_goes_away_in_the_middle(tmp_path: Path) -> None:
    require(postgres_missing())
    history = small(tmp_path / "generated") / "history"
    with PostgresServer() as server:
        url = server.create_database()
        engine = sa.create_engine(url)
        tables.outbox.create(engine)
        tables.inbox.create(engine)
        engine.dispose()
        # The server answers this one only after we have killed it.
        query = "SELECT repeat('A', 32), 1 FROM pg_sleep(600)"
        command: list[str | Path] = [
            *MODULE,
            "audit",
            "--window",
            "2026-03-01T00:00Z/2026-03-01T01:00Z",
            "--history",
            history,
        ]
        command += ["--subscriptions", settings(tmp_path, f'outbox_url = "{url}"'), "--from-configuration"]
        command += ["--inbox", f"ORDERS/billing={url}", "--effects", f"ORDERS/billing={url}#{query}"]
        command += ["--out", tmp_path / "out", "--output", "json", "--engine", "here"]
        with RunningAudit(tmp_path, command) as running:
            watcher = sa.create_engine(url, isolation_level="AUTOCOMMIT")

            def asks() -> bool:
                running.require_running()
                with watcher.connect() as connection:
                    # The audit reads by a cursor: what waits is its FETCH.
                    sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'FETCH%' AND state = 'active'"
                    return int(connection.execute(sa.text(sql)).scalar_one()) > 0

            eventually(asks, within_seconds=600, message="the audit asks the database")
            watcher.dispose()
            server.kill()
            ended = running.ended()
    assert ended.exit_code == 2, ended.stderr
    assert ended.document["reason"] == "inputs"
    assert "--effects ORDERS/billing: the database did not answer to the end" in ended.document["message"]
    assert not (tmp_path / "out").exists()
    assert leftovers(tmp_path / "out") == []


FULL = """
import sys, pathlib
from reconciler.audit.collect.columns import table_of
from reconciler.audit.collect.writer import PrefixWriter
from reconciler.audit.collect.tasks import answer
from reconciler.contract.evidence_layout import INBOX_EVIDENCE

class Task:
    def run(self):
        rows = [(n.to_bytes(16, "big"), "T", "g", n.to_bytes(32, "big"), "consumer", n, None) for n in range(50_000)]
        with PrefixWriter(pathlib.Path(sys.argv[1]), INBOX_EVIDENCE, "part") as writer:
            writer.add(table_of(INBOX_EVIDENCE, rows, "test"))
            return writer.close()

found = answer(Task())
print(found.reason, found.message)
"""


def test_a_full_disk_while_evidence_is_written_leaves_nothing_half(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, 8_192))

    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.startswith("engine evidence cannot be written"), done.stdout + done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
