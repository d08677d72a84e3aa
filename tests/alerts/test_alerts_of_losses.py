"""Messages that are lost, and what keeps them from being repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.world import World

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.unmeasured, pytest.mark.timeout(400)]


def test_memory_of_redis_and_messages_that_are_lost(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.deployed.consume()
        world.deployed.commit(8, producer=world.producer)
        with world.proving("RedisMemoryLost", "WronglyRolledBack") as alerts:
            world.deployed.commit(3, roll_back=True, producer=world.producer)
            alerts.fires("WronglyRolledBack", r": 3 committed messages were rolled back", labels=world.place)
            world.redis.kill()
            world.redis.erase()
            world.redis.start()
            alerts.fires("RedisMemoryLost", r": 1 outages and voided rounds within")
