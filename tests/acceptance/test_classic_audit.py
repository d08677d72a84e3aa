"""The audit shows what the original algorithm misses; it needs no history for it, mode = "classic" writes none."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from tests.acceptance.command import reconciler
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.acceptance.test_classic_mode import CLASSIC, told
from tests.polling import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

LATE_SECONDS = 2.0


def committed_at_ms(deployed: Deployment) -> list[int]:
    with closing(sqlite3.connect(deployed.outbox)) as db:
        return [row[0] for row in db.execute("SELECT created_at_ms FROM reconciler_outbox")]


def test_the_audit_shows_exactly_the_messages_that_the_original_algorithm_missed(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment(shards=1, settings=CLASSIC)
    grace = "grace_period_seconds = 2.0\n"
    text = deployed.config.read_text().replace(grace, f"{grace}late_after_seconds = {LATE_SECONDS}\n")
    deployed.config.write_text(text)
    service = deployed.run("run")
    deployed.consume()
    consumed, lost = deployed.commit(3), deployed.commit(2, lose=True)
    eventually(lambda: deployed.effects() == sorted(consumed), within_seconds=60)
    # It looks for each of them once, finds no half on brokers from 4.3 on, and forgets them.
    eventually(lambda: sum(line["not_found"] for line in told(service, "classic_round")) >= 2, within_seconds=60)
    assert service.end() == 0, service.output[-2000:]

    times = committed_at_ms(deployed)
    start = datetime.fromtimestamp(min(times) / 1000, UTC) - timedelta(seconds=1)
    # What no witness has seen counts that much later.
    end = datetime.fromtimestamp(max(times) / 1000, UTC) + timedelta(seconds=2 * LATE_SECONDS, milliseconds=1)
    closes = end + timedelta(seconds=LATE_SECONDS)
    eventually(lambda: datetime.now(UTC) > closes, within_seconds=60)
    out = deployed.folder / "audit"
    window = "/".join(at.isoformat(timespec="milliseconds") for at in (start, end))
    asked = ("--window", window, "--subscriptions", str(deployed.config), "--from-configuration", "--no-history")
    key, public = deployed.folder / "key.pem", deployed.folder / "key.pem.pub"
    assert reconciler("statement", "keygen", key).exit_code == 0
    signed = ("--out", out, "--signing-key", key)
    ended = reconciler("audit", *asked, *signed, "--engine", "here", "-o", "json", timeout_seconds=500)
    assert ended.exit_code == 1, ended.stderr
    assert ended.document["verdict"] == "violations"
    assert {name: count for name, count in ended.document["classes"].items() if count} == {
        "LOST": 2,
        "EFFECT_IN_TIME": 3,
    }
    findings = json.loads((out / "findings.json").read_text())
    assert {(finding["class"], finding["key"]) for finding in findings} == {("LOST", key) for key in lost}
    assert "there is no history" in (out / "report.html").read_text()
    verified = reconciler("statement", "verify", out, "--public-key", public, "-o", "json")
    assert (verified.exit_code, verified.document["verdict"]) == (0, "verified"), verified.stderr
