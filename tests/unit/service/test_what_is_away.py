"""What follows from a dependency that is away is not told beside it, and is not lost: JSON has it below its cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.commands.doctor.checks import examine
from reconciler.commands.metrics import dependencies_of
from reconciler.commands.status.reading import read_status
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.embedded_cluster import EmbeddedCluster
from tests.settings_file import settings_file


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """A name server, and a broker that has gone without its topics."""
    with EmbeddedCluster(("broker-a",)) as opened:
        opened["broker-a"].stop()
        yield opened


@pytest.fixture
def connections(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Connections]:
    gone = f"sqlite:///{tmp_path}/gone/database.db"
    path = settings_file(
        tmp_path,
        name_servers=cluster.name_servers,
        of_producers=f'outbox_url = "{gone}"',
        of_subscription=f'inbox_url = "{gone}"',
        sections=f'[[subscriptions]]\ntopic = "ORDERS"\ngroup = "points"\ninbox_url = "{gone}"',
        has_ledger=True,
    )
    with Connections(load_settings(path, {})) as opened:
        yield opened


def test_status_names_each_that_is_away_once_and_first(connections: Connections) -> None:
    report = read_status(connections)
    text = "\n".join([said(report.summary), *(said(line) for lines in report.remarks.values() for line in lines)])
    assert "topics create" not in text
    assert "is `reconciler run` alive" not in text
    assert said(report.away[1]) in said(report.summary), "which every subscription needs, and the sentence tells it"
    assert text.count("no broker is registered at the name servers; start one") == 1
    assert [said(line).partition(":")[0] for line in report.away] == [
        "redis",
        "outbox of shop, inbox of ORDERS/billing, inbox of ORDERS/points",
        "rocketmq",
    ]
    assert not report.remarks["late"]
    assert report.late_lines, "a monitor and the dead man's switch count what is not told"
    assert report.exit_code == 3
    followed = report.as_dict()["following"]
    assert isinstance(followed, list)
    assert any("run `reconciler topics create`" in line for one in followed for line in one["lines"])


def test_doctor_has_one_line_and_one_remedy_for_each_that_is_away(connections: Connections) -> None:
    findings = [one for one in examine(connections) if one.level != "ok"]
    rows = [one.as_row() for one in findings]
    assert [row.check.partition(" 127.")[0] for row in rows if row.level == "fail"] == [
        "redis",
        "outbox of shop",
        "name server",
    ]
    assert "topics create" not in str(rows)
    followed = [below.as_row().remedy for one in findings for below in one.following]
    assert "run reconciler topics create" in followed


def test_whoever_asks_for_readiness_reads_each_remedy_once(connections: Connections) -> None:
    problems = [problem for problem in dependencies_of(connections, "run").values() if problem is not None]
    assert len(problems) == 5
    for remedy in ("start Redis", "start one with their addresses", "correct its URL"):
        assert sum(remedy in problem for problem in problems) == 1, problems
