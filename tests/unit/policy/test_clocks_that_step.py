"""Redis' clock is set back, or a node that is behind takes over: new losses are found no later than otherwise."""

from __future__ import annotations

import pytest

from reconciler.events import RoundFinished
from tests.unit.policy.world import World


@pytest.mark.parametrize("step", [0.0, -90.0, -3_600.0, -86_400.0 * 300])
def test_a_loss_after_the_clock_was_set_back_waits_for_its_grace_period_only(step: float) -> None:
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.rounds(process, 3)
    world.clock.advance(step)
    world.lose(1)
    world.rounds(process, 2, every=4.0)
    assert world.broker.ends == []
    world.rounds(process, 3, every=4.0)
    assert len(world.broker.ends) == 1


def test_a_key_that_was_pending_when_the_clock_was_set_back_begins_its_grace_period_again() -> None:
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.lose(1)
    world.rounds(process, 1)
    world.clock.advance(-3_600.0)
    world.rounds(process, 1, every=1.0)
    world.rounds(process, 2, every=4.0)
    assert world.broker.ends == []
    world.rounds(process, 2, every=4.0)
    assert len(world.broker.ends) == 1


def test_the_round_tells_that_the_clock_is_behind_and_by_how_much() -> None:
    world = World(shards=1)
    process = world.process()
    world.rounds(process, 1)
    world.clock.advance(-3_600.0)
    world.rounds(process, 1)
    finished = [event for event in world.events.all if isinstance(event, RoundFinished)]
    assert [round(event.clock_behind_seconds) for event in finished] == [0, 3595]
    assert finished[1].problems == ()
