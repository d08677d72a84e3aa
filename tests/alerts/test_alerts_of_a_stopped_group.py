"""A consumer group that stops while its service goes on to commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.world import World

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.unmeasured, pytest.mark.timeout(600)]

#: More than the number of pending keys that BacklogGrowing allows.
BACKLOG = 10_100


def test_a_stopped_group(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.deployed.consume().shutdown()
        with world.proving("WatermarkStuck", "OldestPendingHigh", "BacklogGrowing") as alerts:
            world.commit(BACKLOG)
            with world.deployed.load(world.producer, lose_every=1_000_000):
                number = alerts.fires("BacklogGrowing", r": (\d+\.\d+)k keys are pending", labels=world.place)
                assert BACKLOG <= float(number[1]) * 1000 < 2 * BACKLOG
                for name, summary in (
                    ("OldestPendingHigh", r"consumption waits for (\d+)m (\d+)s$"),
                    ("WatermarkStuck", r"watermark is (\d+)m (\d+)s old and keys wait"),
                ):
                    age = alerts.fires(name, summary, labels=world.place)
                    assert 70 <= 60 * int(age[1]) + int(age[2]) < 300
            world.deployed.consume()
