"""Another number of shards than `reconciler run` wrote down is refused by every process that would use it."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from reconciler.contract.keyspace import meta_key
from reconciler.contract.subscription import Subscription
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.timeout(120)]


def test_another_number_of_shards_is_refused_with_the_right_one(
    new_deployment: DeploymentFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = new_deployment()
    of = Subscription(environment=deployed.environment, topic=deployed.topic, group=deployed.group)
    with redis.Redis.from_url(deployed.redis_url) as client:
        client.hset(meta_key(of), "shards", SHARDS * 2)
    (tmp_path / "handlers.py").write_text("def handle(message, connection):\n    raise AssertionError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    replay = ("replay", "--handler", "handlers:handle", "--topic", deployed.topic, "--group", deployed.group)
    for command in (("run",), ("once",), ("announcements",), replay):
        ended = deployed.command(*command, timeout_seconds=60)
        assert ended.exit_code == 2, (command, ended.stderr)
        assert str(SHARDS * 2) in ended.stderr, command
