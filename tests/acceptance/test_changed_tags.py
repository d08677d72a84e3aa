"""A wrong setting `tags` hides a loss. Corrected, and both services restarted, that loss alone is repaired."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.polling import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]


def states(deployed: Deployment) -> set[str]:
    """Of all outbox rows."""
    return set(deployed.rows(deployed.outbox, "SELECT state FROM reconciler_outbox"))


def swept_at_ms(deployed: Deployment) -> int:
    """When the last sweep began."""
    (at_ms,) = deployed.rows(deployed.outbox, "SELECT swept_at_ms FROM reconciler_outbox_identity WHERE id = 2")
    return int(at_ms)


def run_both(deployed: Deployment, *, tags: str | None) -> None:
    """`run` and `sweep` with the setting, instead of those that ran before."""
    for service in deployed.services:
        if service.process.poll() is None:
            assert service.end() == 0
    kept = [line for line in deployed.config.read_text().splitlines() if not line.startswith("tags = ")]
    at = kept.index("[[subscriptions]]") + 1
    deployed.config.write_text("\n".join([*kept[:at], *([f'tags = "{tags}"'] if tags else []), *kept[at:]]))
    started = [deployed.run("run"), deployed.run("sweep")]
    eventually(lambda: all(service.takes_signals for service in started), within_seconds=60)


def sweeps_again(deployed: Deployment) -> None:
    """A whole sweep has begun and ended since."""
    for _ in range(2):
        before = swept_at_ms(deployed)
        eventually(lambda before=before: swept_at_ms(deployed) > before, within_seconds=60)  # type: ignore[misc]


def test_lost_message_that_a_wrong_setting_settled_is_repaired_once_it_is_corrected(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    run_both(deployed, tags="refund")
    deployed.consume()
    producer = deployed.producer()
    arrived = deployed.commit(3, producer=producer)
    (lost,) = deployed.commit(1, lose=True, producer=producer)
    eventually(lambda: states(deployed) == {"SETTLED"}, within_seconds=60)
    eventually(lambda: deployed.effects() == sorted(arrived), within_seconds=60)
    assert deployed.repairs() == {}

    run_both(deployed, tags=None)
    eventually(lambda: deployed.repairs() == {lost: "DONE"}, within_seconds=60)
    eventually(lambda: states(deployed) == {"SETTLED"}, within_seconds=60)
    assert deployed.effects() == sorted([*arrived, lost])
    for told in ('"reopened": 1', "takes more tags than before: done"):  # once the whole sweep has ended
        eventually(lambda told=told: told in deployed.services[-1].output, within_seconds=60)  # type: ignore[misc]

    with closing(sqlite3.connect(deployed.outbox)) as db:
        before = db.execute("SELECT * FROM reconciler_outbox ORDER BY unique_key").fetchall()
    run_both(deployed, tags=None)
    sweeps_again(deployed)
    assert "takes more tags" not in deployed.services[-1].output
    with closing(sqlite3.connect(deployed.outbox)) as db:
        assert db.execute("SELECT * FROM reconciler_outbox ORDER BY unique_key").fetchall() == before
    assert deployed.repairs() == {lost: "DONE"}
    assert set(deployed.copies().values()) == {1}
