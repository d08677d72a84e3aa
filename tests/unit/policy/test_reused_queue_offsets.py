"""A business queue gave offsets a second time: that the group's offset is behind a copy proves nothing there."""

from __future__ import annotations

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from tests.unit.policy.world import World, key


def passed_without_effect(*, doubtful_below: int) -> World:
    """The group's offset is behind the only copy, and no inbox has its effect."""
    world = World()
    world.broker.doubtful_below = doubtful_below
    world.deliver(1)
    world.consume(effects=False)
    world.rounds(world.process(), 6)
    return world


def test_a_copy_below_what_was_given_twice_is_neither_lost_nor_called_delivered() -> None:
    row = passed_without_effect(doubtful_below=100).candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state, row.loss_verdict) == (Verdict.UNKNOWN, CandidateState.OPEN, None)
    assert "has given offsets a second time" in str(row.evidence["reason"])


def test_a_copy_that_came_after_it_is_judged_as_ever() -> None:
    assert passed_without_effect(doubtful_below=0).verdict(key(1)) == "DELIVERED_NOT_APPLIED"
