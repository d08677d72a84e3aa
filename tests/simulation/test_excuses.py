"""What a dismissal for one group excuses for another one, and what it forbids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.simulation.kernel import Process
from tests.simulation.swarm import draw
from tests.simulation.world import World

KEY = "KEY1"


@contextmanager
def dismissed_for_group_1(repair_order: str) -> Iterator[World]:
    """A message that no group has, and that a person has dismissed for one of two groups."""
    swarm = draw(1, only=frozenset())
    swarm.groups, swarm.repair_order, swarm.keep_bodies = 2, repair_order, True
    world = World(swarm)
    try:
        for key in (KEY, "KEY2"):
            world.orders[key] = world.troubles.order(1)
        world.checkers.acts.dismissed["group-1", KEY] = 1.0
        world.checkers.acts.spared.add(("group-1", KEY))
        yield world
    finally:
        world.close()


@pytest.mark.parametrize(("repair_order", "is_excused"), [("republish", True), ("full", False), ("hand-over", False)])
def test_a_dismissal_excuses_another_group_only_if_no_rung_could_spare_the_dismissed_one(
    repair_order: str, is_excused: bool
) -> None:
    with dismissed_for_group_1(repair_order) as world:
        assert world.excuses.is_excused("group-0", KEY) is is_excused
        assert not world.excuses.is_excused("group-0", "KEY2")
        assert not world.excuses.is_told("group-0", KEY)


def test_what_reaches_every_group_is_not_sent_for_another_group_than_the_dismissed_one() -> None:
    with dismissed_for_group_1("full") as world:
        acts, process = world.checkers.acts, Process(world.kernel, "reconciler", "reconciler-9", skew_ms=0)
        world.kernel.now = 10.0
        acts.repaired(process, "KEY2", "republish")
        assert not world.checkers.judgement.other
        acts.repaired(process, KEY, "republish")
        assert world.checkers.judgement.other == [f"{KEY} was dismissed for group-1, and reconciler-9 sends republish"]
