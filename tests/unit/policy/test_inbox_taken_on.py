"""A group that has worked without an inbox takes one on: what it applied before has no row, and is not sent again."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import CandidateState, RepairState
from tests.unit.policy.world import World


@pytest.mark.parametrize("rounds", [3, 40])
def test_a_message_that_was_repaired_and_applied_without_a_row_is_not_sent_again(rounds: int) -> None:
    world = World()
    world.inbox.configured = False
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, rounds, consume=False)
    assert len(world.broker.ends) == 1
    world.consume(effects=False)  # members without the plug-in
    world.inbox.configured = True
    world.rounds(world.process(), 80, consume=False)
    assert (len(world.broker.ends), world.broker.republished) == (1, [])
    repair, row = world.repair(lost), world.candidate(lost)
    assert repair is not None
    assert row is not None
    assert (repair.state, row.state) == (RepairState.FAILED, CandidateState.QUARANTINED), "a person looks at it"


def test_a_message_that_a_group_passed_without_an_effect_is_sent_again_where_it_has_always_had_an_inbox() -> None:
    world = World()
    world.lose(1)
    process = world.process()
    world.rounds(process, 3, consume=False)
    world.consume(effects=False)
    world.rounds(process, 80, consume=False)
    assert world.broker.republished
