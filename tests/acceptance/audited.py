"""The audit of what a deployment leaves, over all that it has committed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.acceptance.command import reconciler
from tests.acceptance.deployment import Deployment
from tests.polling import eventually

#: `late_after_seconds` of an audited subscription: the audit waits for that long twice.
LATE_SECONDS = 2.0


def audited(deployed: Deployment) -> Any:
    """The document of an audit without history that found nothing; it counts each row of the outbox."""
    times = deployed.select(deployed.outbox_url, "SELECT created_at_ms FROM reconciler_outbox")
    committed = len(times)
    # A key that no witness has seen at the window's end is counted by the next window.
    times += deployed.select(deployed.inbox_url, "SELECT applied_at_ms FROM reconciler_inbox")
    start = datetime.fromtimestamp(min(times) / 1000, UTC) - timedelta(seconds=1)
    end = datetime.fromtimestamp(max(times) / 1000, UTC) + timedelta(seconds=2 * LATE_SECONDS, milliseconds=1)
    closes = end + timedelta(seconds=LATE_SECONDS)
    eventually(lambda: datetime.now(UTC) > closes, within_seconds=60)
    window = "/".join(at.isoformat(timespec="milliseconds") for at in (start, end))
    asked = ("--window", window, "--subscriptions", str(deployed.config), "--from-configuration", "--no-history")
    ended = reconciler("audit", *asked, "--out", deployed.folder / "audit", "--engine", "here", "-o", "json")
    assert ended.exit_code == 0, ended.stdout + ended.stderr
    assert ended.document["verdict"] == "clean"
    assert sum(ended.document["classes"].values()) == committed
    return ended.document
