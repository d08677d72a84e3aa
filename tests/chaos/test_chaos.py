"""One minute of chaos with real services in every CI run; `make chaos MINUTES=10` for more."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import failpoints
from tests.chaos.faults import kill_a_broker, kill_redis
from tests.chaos.run import ChaosRun, chaos
from tests.chaos.world import World
from tests.services import pgbouncer, postgres, redis_server, rocketmq
from tests.services.requirements import require

pytestmark = [
    pytest.mark.broker,
    pytest.mark.redis,
    pytest.mark.sql,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("chaos"),
]


@pytest.mark.promise("G1", "G5", "L1")
def test_no_accident_in_a_minute_of_kills_lost_calls_and_lost_memory(tmp_path: Path) -> None:
    for missing in (postgres.missing(), pgbouncer.missing(), redis_server.missing(), rocketmq.missing()):
        require(missing)
    told: list[str] = []

    result = chaos(tmp_path, seconds=60, seed=7, rate_per_second=60, tell=told.append)

    assert result["rest"] == "", told[-3:]
    accidents = ("lost", "double", "phantom", "body_differs", "unaccounted")
    assert {name: result[name] for name in accidents} == dict.fromkeys(accidents, 0)
    assert result["committed"] > 500
    assert result["kills"] >= 2  # few where the machine is slow, some thirty where it is not
    assert result["faults_total"] >= 10


#: Each kills a producer, a consumer, a reconciler, a sweeper, Redis and a broker, besides those that die by a sentence.
LAPS = 6


class Kills:
    """Laps of kills; counts those of services, which the world does not count."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, world: World, run: ChaosRun) -> None:
        dice = random.Random("kills")
        for _ in range(LAPS):
            for role in failpoints.CLASSES:
                while not world.living(role):  # a sentence was carried out
                    world.pause(0.1)
                world.kill(world.living(role)[0])
                self.counts[role] += 1
                world.pause(1.0)
            for fault in (kill_redis, kill_a_broker):
                fault(world, dice)
                self.counts[fault.__name__] += 1
            run.window_of_losses()


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_thirty_kills_lose_and_double_nothing_where_brokers_and_redis_have_users_and_tls(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    for missing in (postgres.missing(), redis_server.missing(), rocketmq.missing()):
        require(missing)
    told: list[str] = []
    kills = Kills()

    with World(tmp_path, seed=5, rate_per_second=60, has_plain_database=True, is_secured=True) as world:
        result = ChaosRun(world, seed=5, tell=told.append).take_course(kills)
        crashes = {name: count for name, count in world.counts.items() if name.startswith("ended by itself")}

    record_property("figures", json.dumps(result | {"by_hand": kills.counts}))
    assert result["rest"] == "", told[-3:]
    accidents = ("lost", "double", "phantom", "body_differs", "unaccounted")
    assert {name: result[name] for name in accidents} == dict.fromkeys(accidents, 0)
    assert kills.counts.total() == 6 * LAPS
    assert result["repaired"] >= 1
    assert crashes == {}


@pytest.mark.parametrize("role", sorted(failpoints.CLASSES))
def test_a_role_whose_steps_were_renamed_would_never_be_killed(role: str) -> None:
    steps = failpoints.steps_of(role)
    assert len(steps) >= 2 * len(failpoints.CLASSES[role])
    assert all(step.endswith((":before", ":after")) for step in steps)
