"""The daemon as a process writes history: all that was announced and consumed, no gap over a kill -9 or a stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from reconciler.audit.history.check import check_history
from reconciler.audit.result.values import AuditedSubscription
from reconciler.clock import SystemClock
from reconciler.contract.unique_key import key_of
from reconciler.history.chain import ManifestChain
from reconciler.history.store import HistoryStore
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS, Deployment
from tests.polling import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def settings_with_history(path: Path) -> str:
    return f"""
[rounds]
interval_seconds = 1.0
skew_margin_seconds = 0.5
commit_generations = 4
lease_seconds = 3.0

[repairs]
check_back_wait_seconds = 0

[history]
path = "{path}"
seal_seconds = 1.0
"""


def rows(root: Path, deployed: Deployment, stream: str) -> list[dict[str, Any]]:
    """Rows of the files that the manifest lists; every one of them is what the manifest says."""
    chain = ManifestChain(root, deployed.environment, writer="test", clock=SystemClock())
    chain.refresh()
    assert chain.problems == []
    store = HistoryStore(root, deployed.environment)
    found = [f for f in chain.files().values() if f.stream == stream]
    return [row for file in found for row in store.read(file).to_pylist()]


def keys(root: Path, deployed: Deployment, stream: str) -> set[str]:
    return {key_of(row["key"]) for row in rows(root, deployed, stream)}


def generations_without_a_hole(root: Path, deployed: Deployment) -> bool:
    seen: dict[tuple[int, str], set[int]] = {}
    for row in rows(root, deployed, "round"):
        seen.setdefault((row["shard"], row["epoch"]), set()).add(row["generation"])
    return len(seen) == SHARDS and all(found == set(range(1, max(found) + 1)) for found in seen.values())


def window_of(root: Path, deployed: Deployment) -> tuple[int, int]:
    times = [row["at_ms"] for row in rows(root, deployed, "round")]
    return min(times), max(times)


def assert_whole(root: Path, deployed: Deployment) -> None:
    """Nothing is missing, by this test's count and by the audit's."""
    assert rows(root, deployed, "gap") == []
    assert generations_without_a_hole(root, deployed)
    subscription = AuditedSubscription(
        topic=deployed.topic,
        group=deployed.group,
        tags=None,
        producer_groups=(),
        grace_period_seconds=30.0,
        late_after_seconds=300.0,
    )
    window_ms = window_of(root, deployed)
    told = check_history(root, deployed.environment, [subscription], SHARDS, window_ms, asked_at_ms=window_ms[1])
    assert (told.problems, told.gaps) == ((), ())
    assert told.watermarks[deployed.topic, deployed.group] is not None


def test_history_holds_what_was_announced_and_consumed_and_a_kill_leaves_no_gap(
    new_deployment: DeploymentFactory, tmp_path: Path
) -> None:
    root = tmp_path / "history"
    deployed = new_deployment(settings=settings_with_history(root))
    service = deployed.run("run")
    deployed.consume()
    producer = deployed.producer()
    committed = deployed.commit(8, producer=producer)
    eventually(lambda: len(keys(root, deployed, "announced")) >= 4, within_seconds=60)
    committed += deployed.commit(8, producer=producer)
    service.end(signal.SIGKILL)

    meanwhile = deployed.commit(4, producer=producer)
    lost = deployed.commit(2, lose=True, producer=producer)
    service = deployed.run("run")
    everything = {*committed, *meanwhile, *lost}
    eventually(lambda: set(deployed.effects()) == everything, within_seconds=90)
    eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)
    eventually(lambda: keys(root, deployed, "consumed") == everything, within_seconds=60)
    eventually(lambda: keys(root, deployed, "announced") == everything, within_seconds=60)

    story = deployed.command("explain", lost[0], "--output", "json")
    assert story.exit_code == 0, story.stderr
    told = [event["what"] for event in story.document["events"] if event["witness"] == "history"]
    assert any("announcement taken by round" in what for what in told), told
    assert any("consumption taken by round" in what for what in told), told
    status = deployed.command("status", "--output", "json", "--rounds-within", "30")
    assert status.document["late"] == [], "the history keeps up with the rounds"
    [standing] = status.document["history"]
    assert standing["gaps"] == 0
    assert standing["captured_until_ms"] > 0
    assert service.end() == 0, service.output[-3000:]

    assert keys(root, deployed, "announced") == keys(root, deployed, "consumed") == everything
    assert keys(root, deployed, "repair") == set(lost)
    assert keys(root, deployed, "verdict") >= set(lost)
    snapshots = rows(root, deployed, "snapshot")
    assert {row["shard"] for row in snapshots if row["kind"] == "SHUTDOWN"} == set(range(SHARDS))
    pending = keys(root, deployed, "pending")
    assert everything <= keys(root, deployed, "left") | keys(root, deployed, "consumed") | pending
    assert not any((root / ".spool").rglob("*.closed")), "everything is sealed at a clean stop"
    for file in root.rglob("*.parquet"):
        assert pq.read_metadata(file).num_rows > 0
    assert_whole(root, deployed)


def test_two_daemons_share_a_history_and_one_adopts_what_the_other_left(
    new_deployment: DeploymentFactory, tmp_path: Path
) -> None:
    root = tmp_path / "history"
    deployed = new_deployment(settings=settings_with_history(root))
    services = [deployed.run("run"), deployed.run("run")]
    deployed.consume()
    producer = deployed.producer()
    committed = deployed.commit(10, producer=producer)
    eventually(lambda: keys(root, deployed, "consumed") == set(committed), within_seconds=90)
    services[0].end(signal.SIGKILL)
    committed += deployed.commit(10, producer=producer)
    eventually(lambda: keys(root, deployed, "consumed") == set(committed), within_seconds=90)
    # The dead one's announcement queues are taken over in their own time.
    eventually(lambda: keys(root, deployed, "announced") == set(committed), within_seconds=90)
    # os.walk ignores what vanishes while it looks; rglob raises.
    eventually(lambda: sum("lock" in names for _, _, names in os.walk(root / ".spool")) == 1, within_seconds=60)
    assert services[1].end() == 0, services[1].output[-3000:]
    assert keys(root, deployed, "announced") == keys(root, deployed, "consumed") == set(committed)
    assert_whole(root, deployed)


def test_a_single_pass_leaves_its_history_behind(new_deployment: DeploymentFactory, tmp_path: Path) -> None:
    root = tmp_path / "history"
    deployed = new_deployment(settings=settings_with_history(root))
    deployed.consume()
    committed = deployed.commit(3)
    eventually(lambda: set(deployed.effects()) == set(committed), within_seconds=90)
    ended = deployed.command("once")
    assert ended.exit_code == 0, ended.stderr
    assert keys(root, deployed, "announced") == set(committed)
    assert_whole(root, deployed)
