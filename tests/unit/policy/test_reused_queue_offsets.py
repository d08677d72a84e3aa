"""A business queue gave offsets a second time: that the group's offset is behind a copy proves nothing there."""

from __future__ import annotations

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from tests.unit.policy.world import World, key


def passed_without_effect(*, doubtful_below: int, kind: str = "") -> World:
    """The group's offset is behind the only copy, and no inbox has its effect; `kind`: of the group's copy of it."""
    world = World()
    world.broker.doubtful_below = doubtful_below
    world.deliver(1)
    if kind:
        world.broker.in_group_topic("billing", kind, world.broker.copies[0], topic=f"of billing: {kind}")
    world.consume(effects=False)
    world.rounds(world.process(), 6)
    return world


def test_a_copy_below_what_was_given_twice_is_neither_lost_nor_called_delivered() -> None:
    row = passed_without_effect(doubtful_below=100).candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state, row.loss_verdict) == (Verdict.UNKNOWN, CandidateState.OPEN, None)
    assert "has given offsets a second time" in str(row.evidence["reason"])


def test_a_dead_letter_needs_no_offset_to_be_told() -> None:
    row = passed_without_effect(doubtful_below=100, kind="dead-letter").candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state, row.loss_verdict) == (Verdict.DEAD_LETTERED, CandidateState.QUARANTINED, None)


def test_a_copy_for_the_next_try_leaves_it_unknown() -> None:
    assert passed_without_effect(doubtful_below=100, kind="retry").verdict(key(1)) == "UNKNOWN"


def test_a_copy_that_came_after_it_is_judged_as_ever() -> None:
    assert passed_without_effect(doubtful_below=0).verdict(key(1)) == "DELIVERED_NOT_APPLIED"
