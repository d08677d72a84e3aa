"""Another number of shards than `reconciler run` wrote down is refused by every process that would use it. Of one
subscription among several it costs that one alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from reconciler.contract.keyspace import meta_key
from reconciler.contract.subscription import Subscription
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS
from tests.acceptance.work import Work
from tests.polling import eventually

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


def test_a_foreign_number_costs_its_subscription_alone_and_status_names_it(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    settings = deployed.config.read_text()
    other = f"{deployed.group}-audit"
    section = f'[[subscriptions]]\ntopic = "{deployed.topic}"\ngroup = "{other}"\n\n[logging]'
    deployed.config.write_text(settings.replace("[logging]", section))
    foreign = Subscription(environment=deployed.environment, topic=deployed.topic, group=other)
    work = Work(deployed)
    with redis.Redis.from_url(deployed.redis_url, decode_responses=True) as client:
        eventually(lambda: client.hget(meta_key(foreign), "shards") == str(SHARDS), within_seconds=60)
        client.hset(meta_key(foreign), "shards", SHARDS * 2)
        work.tells(0, "subscription_waits", str(foreign))
        work.commit()
        eventually(lambda: deployed.effects() == sorted(work.committed), within_seconds=60)
        (late,) = deployed.command("status", "--output", "json").document["late"]
        assert f"{foreign} runs with {SHARDS * 2} shards" in late
        client.hset(meta_key(foreign), "shards", SHARDS)
        eventually(lambda: not deployed.command("status", "-o", "json").document["late"], within_seconds=60)
        work.is_running()
