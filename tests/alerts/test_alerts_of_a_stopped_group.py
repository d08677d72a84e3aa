"""A consumer group that stops while its service goes on to commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.world import World

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

#: Ten keys of the rules are one of the test.
KEYS_FACTOR = 10.0
#: More pending keys than BacklogGrowing allows then.
BACKLOG = 1_010
#: Prometheus tells four digits of a number.
ROUNDING = 1


def test_a_stopped_group(tmp_path: Path) -> None:
    with World(tmp_path, keys_factor=KEYS_FACTOR) as world:
        world.deployed.consume().shutdown()
        with world.proving("WatermarkStuck", "OldestPendingHigh", "BacklogGrowing") as alerts:
            world.commit(BACKLOG)
            with world.deployed.load(world.producer, lose_every=1_000_000) as load:
                number = alerts.fires("BacklogGrowing", r": (\d+\.\d+)k keys are pending", labels=world.place)
                assert BACKLOG <= float(number[1]) * 1000 <= BACKLOG + len(load.committed) + ROUNDING
                for name, summary in (
                    ("OldestPendingHigh", "consumption waits for {age}$"),
                    ("WatermarkStuck", "watermark is {age} old and keys wait"),
                ):
                    alerts.tells_age(name, summary, labels=world.place, at_least_seconds=60)
            world.deployed.consume()
