"""After Redis fell back, or recorders were away, most due keys have arrived long ago: rounds must get through them."""

from __future__ import annotations

import pytest

from reconciler.candidates import SelectionRules
from reconciler.events import RoundFinished
from reconciler.reconcile_round import CATCH_UP_PASSES, RoundReport
from tests.unit.policy.world import World

ROOM = 10


def due_round(arrived: int, lost: int) -> tuple[World, RoundReport]:
    """The round for which so many keys are due, losses last; consumers took the others and recorded none."""
    world = World(selection=SelectionRules(skew_margin_seconds=0.5, candidates_max=ROOM))
    for number in range(arrived):
        world.deliver(number)
    world.consume(records=False)
    process = world.process()
    process.run(world.subscriptions[0])
    world.clock.advance(1)
    for number in range(arrived, arrived + lost):
        world.lose(number)
    process.run(world.subscriptions[0])
    world.clock.advance(60)
    return world, process.run(world.subscriptions[0])


@pytest.mark.parametrize("arrived", [ROOM - 1, ROOM, 3 * ROOM, (CATCH_UP_PASSES - 2) * ROOM])
def test_keys_that_have_arrived_hold_up_nobody_until_the_next_round(arrived: int) -> None:
    world, report = due_round(arrived, lost=0)
    assert world.pending() == []
    assert report.event is not None
    assert (report.event.verified, report.event.settled) == (arrived, arrived)
    assert (report.event.became_due, report.event.verdicts) == (arrived, {"CONSUMED": arrived})


def test_a_loss_behind_many_that_have_arrived_is_repaired_in_the_same_round() -> None:
    world, report = due_round(5 * ROOM, lost=1)
    assert len(world.broker.ends) == 1
    assert report.event is not None
    assert report.event.verdicts == {"CONSUMED": 5 * ROOM, "LOST_CONFIRM": 1}
    # Not one object a key: a round that catches up with a day would not fit in memory.
    assert len(report.judged) <= 2 * ROOM + 1


def test_a_round_ends_however_much_is_left() -> None:
    world, report = due_round((CATCH_UP_PASSES + 2) * ROOM, lost=0)
    assert len(world.pending()) >= 2 * ROOM
    assert report.event is not None
    assert (CATCH_UP_PASSES - 1) * ROOM < report.event.verified <= CATCH_UP_PASSES * ROOM


def test_losses_are_looked_at_no_faster_than_before() -> None:
    """Their look-ups cost the brokers: candidates_max bounds them in each round."""
    world, report = due_round(ROOM, lost=3 * ROOM)
    assert report.event is not None
    # The first pass was full of arrivals, the second of losses; a third would have been too many.
    assert report.event.verdicts == {"CONSUMED": ROOM, "LOST_CONFIRM": ROOM}
    assert len(world.events.of(RoundFinished)) == 3
