"""Two clusters, or two Redis, in one environment: the second one is refused, and nothing says that all is well."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.acceptance.marked_secrets import redis_options, with_login
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import RedisFactory

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

WHY = "another cluster is run with it: in {place}"
ANOTHER_REDIS = "another Redis is run with it: in {place}"


def share(first: Deployment, other: Deployment, *, redis_url: str | None = None, ledger_url: str | None = None) -> None:
    """Gives the other one the environment of the first one, and what else is named, as a copied file would."""
    other.file_of("redis").write_text(redis_url or other.redis_url)
    text = other._toml().replace(f'environment = "{other.environment}"', f'environment = "{first.environment}"')
    other.config.write_text(text.replace(other.ledger_url, ledger_url or other.ledger_url))


def require_told(deployed: Deployment, *, place: str, why: str = WHY) -> None:
    """By `status` and `doctor`, with the settings of the cluster that is refused."""
    status = deployed.command("status", "-o", "json")
    assert status.exit_code == 3, status.stdout + status.stderr
    assert any(why.format(place=place) in line for line in status.document["late"]), status.document["late"]
    doctor = deployed.command("doctor", "-o", "json")
    assert doctor.exit_code == 1
    (found,) = [f for f in doctor.document["findings"] if f["check"] == f"environment in {place}"]
    assert (found["level"], why.format(place=place) in found["found"]) == ("fail", True), found


def test_a_second_cluster_or_redis_with_the_same_environment_is_refused_by_one_redis_and_by_one_ledger(
    new_deployment: DeploymentFactory, new_redis_server: RedisFactory, tmp_path: Path
) -> None:
    with EmbeddedBroker() as second_cluster:  # its broker has the name of the first one's
        first = new_deployment()
        other_redis = new_redis_server(options=redis_options(tmp_path))
        other = new_deployment(name_servers=second_cluster.name_servers, redis_url=with_login(other_redis.url))
        running = first.run("run")
        eventually(lambda: first.rows(first.ledger, "SELECT 1 FROM reconciler_round"), within_seconds=60)
        share(first, other, redis_url=first.redis_url)
        refused = [other.run("run"), other.run("announcements")]
        require_told(other, place="Redis")
        for service in refused:
            assert service.process.wait(60) == 2, service.output
            assert WHY.format(place="Redis") in service.output
        assert not other.rows(other.ledger, "SELECT 1 FROM reconciler_round"), "it touched nothing"
        share(first, other, ledger_url=first.ledger_url)
        once = other.command("once")
        assert (once.exit_code, WHY.format(place="the ledger") in once.stderr) == (2, True), once.stderr
        moved = new_deployment(redis_url=with_login(other_redis.url))
        share(first, moved, ledger_url=first.ledger_url)
        require_told(moved, place="the ledger", why=ANOTHER_REDIS)
        once = moved.command("once")
        assert (once.exit_code, ANOTHER_REDIS.format(place="the ledger") in once.stderr) == (2, True), once.stderr
        eventually(lambda: first.command("status", "-o", "json").exit_code == 0, within_seconds=60)
        assert running.end(signal.SIGTERM) == 0
