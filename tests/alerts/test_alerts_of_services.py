"""Redis and processes that are killed."""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL

import pytest

from tests.alerts.world import World

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(400)]


def test_killed_redis_sweeper_and_service(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.deployed.consume()
        world.commit(8)
        with world.proving("RedisDown", "RoundStale") as alerts:
            world.redis.kill()
            alerts.fires("RedisDown", r"^run: Redis does not answer \(up: 0\)", labels={"job": "run"})
            alerts.tells_age("RoundStale", ": no round for {age}$", labels=world.place, at_least_seconds=5)
            world.redis.start()
        with world.proving("SweepStale", "AccountedUntilStale") as alerts:
            world.sweeper.end(SIGKILL)
            alerts.fires("SweepStale", r"^no process shows a sweep$")
            late = "of the last {age} are not accounted"
            alerts.tells_age("AccountedUntilStale", late, labels=world.place, at_least_seconds=10)
            world.start_sweeper()
        with world.proving("RoundStale") as alerts:
            world.service.end(SIGKILL)
            alerts.fires("RoundStale", r"^no process shows a round$")
            world.start_service()
