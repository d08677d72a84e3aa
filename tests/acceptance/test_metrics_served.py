"""The services serve metrics: a loss and a dependency that is away are seen, and promtool has no complaint."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.conftest import DeploymentFactory
from tests.polling import eventually
from tests.services.ports import free_port
from tests.services.redis_server import RedisServer
from tests.services.requirements import promtool_missing, require

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def settings(port: int, history: Path) -> str:
    return f"""
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5

[repairs]
check_back_wait_seconds = 0

[sweep]
interval_seconds = 0.5
sweep_after_seconds = 2.0

[history]
path = "{history}"

[metrics]
listen = "127.0.0.1:{port}"
"""


def fetched(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=15) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def values(port: int, name: str) -> dict[str, float]:
    """Value by the labels of one metric."""
    _, text = fetched(port, "/metrics")
    return {
        ",".join(label for _, label in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def complaints(text: str) -> str:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    return checked.stdout + checked.stderr if checked.returncode or checked.stderr.strip() else ""


@pytest.mark.nightly
def test_a_loss_and_a_redis_that_is_away_are_seen_by_a_scraper(
    new_deployment: DeploymentFactory, redis_server: RedisServer, tmp_path: Path
) -> None:
    require(promtool_missing())
    port, sweep_port = free_port(), free_port()
    deployed = new_deployment(settings=settings(port, tmp_path / "history"))
    assert deployed.command("hold", deployed.topic).exit_code == 0
    service = deployed.run("run")
    sweeper = deployed.run("sweep", variables={"RECONCILER_METRICS__LISTEN": f"127.0.0.1:{sweep_port}"})
    (lost,) = deployed.commit(1, lose=True)
    eventually(lambda: deployed.verdicts() == {lost: "LOST_CONFIRM"}, within_seconds=60)
    place = f"{deployed.group},{deployed.topic}"
    eventually(lambda: values(port, "reconciler_lost_ids") == {place: 1}, within_seconds=60)
    assert values(port, "reconciler_hold") == {deployed.topic: 1}
    losses = values(port, "reconciler_losses_total")
    assert {labels: count for labels, count in losses.items() if count} == {f"{place},lost_confirm": 1}
    assert values(port, "reconciler_history_rows_written_total")[""] > 0
    said = json.loads(deployed.command("status", "-o", "json").stdout)["subscriptions"][0]
    shown_ms = values(port, "reconciler_accounted_until_timestamp_seconds")[place] * 1000
    assert 0 <= said["accounted_until_ms"] - shown_ms < 60_000, "the time that `status` says, some seconds ago"
    assert values(sweep_port, "reconciler_swept_rows_total")["announced"] >= 0
    assert values(sweep_port, "reconciler_last_sweep_timestamp_seconds")[""] > 0
    assert "reconciler_lost_ids" not in fetched(sweep_port, "/metrics")[1], "one source, not one a process"
    assert [fetched(at, "/readyz")[0] for at in (port, sweep_port)] == [200, 200]
    assert [complaints(fetched(at, "/metrics")[1]) for at in (port, sweep_port)] == ["", ""]

    redis_server.kill()
    eventually(lambda: values(port, "reconciler_dependency_up").get("redis") == 0, within_seconds=90)
    assert (fetched(port, "/livez")[0], fetched(port, "/readyz")[0]) == (200, 503)
    assert values(port, "reconciler_dependency_up")["ledger"] == 1
    eventually(lambda: values(port, "reconciler_pending_ids") == {}, within_seconds=90)
    assert values(port, "reconciler_lost_ids") == {place: 1}, "the ledger still knows"
    assert [service.end(), sweeper.end()] == [0, 0]
