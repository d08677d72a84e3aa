"""The daemon as a process: one lost message from half to effect, kill -9, two daemons, signals."""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.conftest import DeploymentFactory
from tests.polling import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.mark.promise("L1")
def test_lost_message_takes_effect_once_and_is_explained(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    service = deployed.run("run")
    deployed.consume()
    producer = deployed.producer()
    delivered = deployed.commit(3, producer=producer)
    lost = deployed.commit(2, lose=True, producer=producer)
    eventually(lambda: deployed.effects() == sorted(delivered + lost), within_seconds=90)
    eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)
    assert set(deployed.repairs()) == set(lost)

    story = deployed.command("explain", lost[0], "--output", "json")
    assert story.exit_code == 0, story.stderr
    told = [event["what"] for event in story.document["events"]]
    assert any("local transaction" in what for what in told)
    assert any("repair sent by end" in what for what in told)
    assert any("took effect" in what for what in told)
    eventually(lambda: deployed.command("status").exit_code == 0, within_seconds=60)
    assert service.end() == 0, service.output[-2000:]


@pytest.mark.promise("G1")
def test_two_daemons_repair_once(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    services = [deployed.run("run"), deployed.run("run")]
    deployed.consume()
    lost = deployed.commit(12, lose=True)
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=120)
    eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)
    attempts = deployed.rows(deployed.ledger, "SELECT attempts FROM reconciler_repair")
    assert attempts == [1] * 12
    assert [service.end() for service in services] == [0, 0]


def test_killed_daemon_resumes_where_it_was(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    service = deployed.run("run")
    deployed.consume()
    lost = deployed.commit(6, lose=True)
    eventually(lambda: len(deployed.verdicts()) > 0, within_seconds=60)
    service.end(signal.SIGKILL)
    deployed.run("run")
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=150)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_ends_every_service_with_its_code(
    number: signal.Signals, code: int, new_deployment: DeploymentFactory
) -> None:
    deployed = new_deployment()
    services = [deployed.run(name) for name in ("run", "sweep", "announcements")]
    eventually(lambda: len(deployed.rows(deployed.ledger, "SELECT 1 FROM reconciler_round")) > 0, within_seconds=60)
    eventually(lambda: all(service.takes_signals for service in services), within_seconds=60)
    assert [service.end(number) for service in services] == [code] * 3
