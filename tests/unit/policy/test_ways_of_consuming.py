"""Groups whose offsets say something else than usual: broadcasting, orderly ones that stand still, resets by time."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import CandidateState, RepairState
from tests.unit.policy.world import World, key


@pytest.mark.set_up("a broadcasting group")
def test_of_a_broadcasting_group_a_lost_message_is_found_by_the_trickle_and_nothing_is_called_acknowledged() -> None:
    """Its instances keep their offsets for themselves: for its brokers it has consumed nothing."""
    world = World(shards=1)
    world.broker.watermark_known = False
    world.deliver(1)
    lost = world.lose(2)
    world.rounds(world.process(), 60, consume=False)
    assert world.verdict(key(1)) == "LAGGING"
    assert world.repair(key(1)) is None
    row = world.repair(lost)
    assert row is not None
    assert (row.state, row.attempts) == (RepairState.SENT, 1)


@pytest.mark.set_up("an orderly group that stands still on one message")
def test_an_orderly_group_that_stands_still_on_one_message_lags_and_nothing_behind_it_is_repaired() -> None:
    """It tries that message again and again where it is, and stores no later offset."""
    world = World(shards=1)
    world.deliver(1)
    world.consume()
    delivered = [world.deliver(number) for number in range(2, 12)]
    lost = world.lose(12)
    process = world.process()
    world.rounds(process, 60, consume=False)
    assert {world.verdict(one) for one in delivered} <= {"LAGGING", None}
    assert {world.repair(one) for one in delivered} == {None}
    assert world.repair(lost) is not None, "the trickle looks behind the gate"
    world.rounds(process, 100)
    assert {("billing", one) for one in (*delivered, lost)} <= world.inbox.rows.keys()
    assert len(world.broker.ends) == 1


@pytest.mark.set_up("a group's offset reset by time (mqadmin resetOffsetByTime)")
def test_what_a_reset_by_time_skips_is_told_and_not_sent_and_a_reset_back_takes_it_back() -> None:
    world = World(shards=1)
    skipped = world.deliver(1)
    process = world.process()
    world.consume(effects=False)
    world.rounds(process, 6, consume=False)
    row = world.candidate(skipped)
    assert row is not None
    assert (row.verdict, row.state) == ("DELIVERED_NOT_APPLIED", CandidateState.QUARANTINED)
    world.broker.offsets["billing"] = 0
    world.rounds(process, 30)
    assert world.verdict(skipped) == "CONSUMED"
    assert (world.repair(skipped), world.deliveries.count(("billing", skipped))) == (None, 2)
