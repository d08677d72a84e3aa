"""Redis and processes that are killed."""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL

import pytest

from tests.alerts.world import World

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.unmeasured, pytest.mark.timeout(400)]


def test_killed_redis_sweeper_and_service(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.deployed.consume()
        world.commit(8)
        with world.proving("RedisDown", "RoundStale") as alerts:
            world.redis.kill()
            alerts.fires("RedisDown", r"^run: Redis does not answer \(up: 0\)", labels={"job": "run"})
            age = alerts.fires("RoundStale", r": no round for (\d+)\.\d+s$", labels=world.place)
            assert 5 <= int(age[1]) < 60
            world.redis.start()
        with world.proving("SweepStale", "AccountedUntilStale") as alerts:
            world.sweeper.end(SIGKILL)
            alerts.fires("SweepStale", r"^no process shows a sweep$")
            age = alerts.fires("AccountedUntilStale", r"of the last (\d+)\.\d+s are not accounted", labels=world.place)
            assert 10 <= int(age[1]) < 60
            world.start_sweeper()
        with world.proving("RoundStale") as alerts:
            world.service.end(SIGKILL)
            alerts.fires("RoundStale", r"^no process shows a round$")
            world.start_service()
