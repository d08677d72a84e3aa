"""FLUSHALL under load, before the history has read what the last rounds took: the window is audited like any other."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from reconciler.clock import SystemClock
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from tests.acceptance.command import reconciler
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS, Deployment
from tests.acceptance.test_history_written import rows
from tests.polling import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

LATE_MS = 2_000


def settings(path: Path) -> str:
    return f"""
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5
commit_generations = 4

[repairs]
enabled = false

[history]
path = "{path}"
seal_seconds = 1.0
"""


def flush_behind_a_round(deployed: Deployment) -> None:
    """FLUSHALL within a millisecond of a round: the history waits for a tenth of a second before it reads one."""
    of = Subscription(environment=deployed.environment, topic=deployed.topic, group=deployed.group)
    generations = [ShardKeys(Shard(subscription=of, number=number)).generation for number in range(SHARDS)]
    with closing(redis.Redis.from_url(deployed.redis_url)) as client:
        before = [str(int(number or 0)) for number in client.mget(generations)]
        flushed = """
        for i = 1, #KEYS do if (redis.call('GET', KEYS[i]) or '0') == ARGV[i] then return 0 end end
        redis.call('FLUSHALL')
        return 1
        """
        ended = SystemClock().monotonic_seconds() + 60
        # Without a pause: `eventually` would look a tenth of a second later.
        while not client.eval(flushed, len(generations), *generations, *before):
            assert SystemClock().monotonic_seconds() < ended, "no round runs"


def flush_until_rounds_are_gone(deployed: Deployment, root: Path) -> None:
    """On a busy machine the history may have read a round before it is flushed: then once more."""
    outages = "SELECT 1 FROM reconciler_outage WHERE closed_at_ms IS NOT NULL"
    for flushes in range(1, 6):
        flush_behind_a_round(deployed)
        eventually(
            lambda count=flushes: len(deployed.rows(deployed.ledger, outages)) >= count,  # type: ignore[misc]
            within_seconds=60,
            message="the outage is closed",
        )
        with suppress(AssertionError):
            eventually(lambda: rows(root, deployed, "reread"), within_seconds=10)
            break


def window_of(deployed: Deployment, root: Path) -> str:
    """The window of all that was committed, once the history has come far enough to answer for it."""
    with closing(sqlite3.connect(deployed.outbox)) as db:
        start_ms, end_ms = db.execute("SELECT min(created_at_ms), max(created_at_ms) FROM reconciler_outbox").fetchone()
    end_ms += 2 * LATE_MS + 1  # what no witness has seen counts that much later
    eventually(
        lambda: (
            min(
                max(row["at_ms"] for row in last if row["shard"] == number)
                for last in [[*rows(root, deployed, "round"), *rows(root, deployed, "snapshot")]]
                for number in range(SHARDS)
            )
            > end_ms + LATE_MS
        ),
        within_seconds=60,
    )
    times = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (start_ms, end_ms))
    return "/".join(time.isoformat(timespec="milliseconds") for time in times)


@pytest.mark.parametrize(
    "engine",
    [
        "here",
        pytest.param("spark", marks=[pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(600)]),
    ],
)
def test_the_audit_answers_for_a_window_with_a_flushall_and_finds_each_loss_in_it(
    engine: str, new_deployment: DeploymentFactory, tmp_path: Path
) -> None:
    root = tmp_path / "history"
    deployed = new_deployment(settings=settings(root))
    grace = "grace_period_seconds = 2.0\n"
    late = f"{grace}late_after_seconds = {LATE_MS / 1000}\n"
    deployed.config.write_text(deployed.config.read_text().replace(grace, late))
    service = deployed.run("run")
    deployed.consume()
    producer = deployed.producer()
    # A round more than the history can read back: floors are told as late as that, and shards rest then.
    eventually(lambda: len(rows(root, deployed, "round")) >= 5 * SHARDS, within_seconds=60)
    with deployed.load(producer, lose_every=10**9) as load:
        eventually(lambda: len(deployed.effects()) >= 20, within_seconds=60)
        lost = deployed.commit(1, lose=True, producer=producer)
        eventually(lambda: deployed.verdicts().keys() >= set(lost), within_seconds=60)
        [undone] = deployed.commit(1, producer=producer)
        eventually(lambda: undone in deployed.effects(), within_seconds=60)
        lost += deployed.commit(1, lose=True, producer=producer)
        flush_until_rounds_are_gone(deployed, root)
    # The third: its effect is taken back, though the history has it as consumed.
    with closing(sqlite3.connect(deployed.inbox)) as db, db:
        db.execute("DELETE FROM reconciler_inbox WHERE unique_key = ?", (undone,))

    window = window_of(deployed, root)
    status = deployed.command("status", "--output", "json", "--rounds-within", "30")
    assert service.end() == 0, service.output[-3000:]
    assert rows(root, deployed, "reread"), "rounds went with Redis before they were captured"
    assert rows(root, deployed, "gap") == []
    assert [standing["gaps"] for standing in status.document["history"]] == [0]

    out = tmp_path / "audit"
    asked = ("--window", window, "--subscriptions", deployed.config, "--from-configuration", "--history", root)
    ended = reconciler("audit", *asked, "--engine", engine, "--out", out, "-o", "json", timeout_seconds=500)
    assert ended.exit_code == 1, ended.stdout
    assert ended.document["verdict"] == "violations"
    findings = json.loads((out / "findings.json").read_text())
    violations = [(f["class"], f["key"]) for f in findings if f["class"] != "EFFECT_LATE"]
    assert sorted(violations) == sorted(("LOST", key) for key in [*lost, undone])
    assert sum(ended.document["classes"].values()) == len(load.committed) + 3
    [unjudged] = [one for one in json.loads((out / "result.json").read_text())["not_checked"] if "Redis" in one["why"]]
    assert unjudged["class_name"] == "UNACCOUNTED"
