"""END on an older half copy delivers, and the broker, which forgets it, goes on asking and parks the message.

So a half that was put back, or parked, may be younger than a copy of its message, and outlive it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.tables import CandidateState
from reconciler.policy.evidence import FilterKind
from reconciler.policy.open_halves import HalfState
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC
from tests.unit.policy.test_open_halves import Errand
from tests.unit.policy.test_since import add, closed, running
from tests.unit.policy.world import World

LEFT = ("put back", "parked")


def end_late(world: World, number: int) -> str:
    """Put back, committed by its first copy, put back once more, and parked."""
    key = world.lose(number)
    first = world.broker.halves[-1]
    again = world.broker.put_back(first)
    world.broker.commit(first)
    last = world.broker.put_back(again)
    world.broker.parked.append(replace(last, topic=DISCARD_TOPIC, commit_log_offset=last.commit_log_offset + 50))
    return key


def delete_by_age(world: World, left: str) -> None:
    """What is older than the last put-back half, or than the parked one, is gone, the delivered copies with it."""
    world.broker.copies.clear()
    newest = {half.unique_key: half for half in world.broker.halves}
    world.broker.halves[:] = newest.values() if left == "put back" else ()


def test_while_its_copy_is_there_it_is_no_loss_and_nothing_is_sent() -> None:
    world = World(shards=1)
    key = end_late(world, 1)
    world.rounds(world.process(), 6, consume=False)
    assert (world.verdict(key), world.repair(key)) == ("LAGGING", None)
    world.consume(records=False)
    world.rounds(world.process(), 6, consume=False)
    assert (world.verdict(key), world.repair(key)) == ("CONSUMED", None)
    assert not world.broker.ends


@pytest.mark.parametrize("left", LEFT)
def test_a_group_that_came_later_is_not_sent_what_others_were_given_before(left: str) -> None:
    world = running()
    old = [end_late(world, number) for number in range(3)]
    world.rounds(world.process(), 12)
    delete_by_age(world, left)
    later = add(world, announced=old, at_the_end=False)
    world.rounds(later, 12)
    assert {closed(world, one) for one in old} == {(CandidateState.SETTLED, "BEFORE_SINCE")}
    assert not world.broker.ends
    assert not world.broker.republished


@pytest.mark.parametrize("left", LEFT)
def test_what_a_group_may_have_filtered_is_not_called_lost_once_its_copy_is_gone(left: str) -> None:
    world = World(shards=1)
    world.broker.group_filters = FilterKind.SQL92
    key = end_late(world, 1)
    world.consume(effects=False)
    world.rounds(world.process(), 6)
    assert world.verdict(key) == "UNKNOWN"
    delete_by_age(world, left)
    world.clock.advance(3_700)
    world.rounds(world.process(), 3)
    assert (world.verdict(key), world.repair(key)) == ("UNKNOWN", None)


def test_a_lost_message_whose_first_half_copy_is_gone_is_ended_all_the_same() -> None:
    world = World(shards=1)
    key = world.lose(1)
    world.broker.put_back(world.broker.halves[0])
    del world.broker.halves[0]
    world.rounds(world.process(), 12)
    assert [offset for _, offset, commit in world.broker.ends if commit] == [world.broker.halves[0].commit_log_offset]
    assert world.verdict(key) == "CONSUMED"


def test_a_half_that_is_asked_for_again_after_it_was_parked_is_open() -> None:
    """RESUME_CHECK_HALF_MESSAGE makes a new half: its broker asks, and a dismissed message would be delivered."""
    errand = Errand(*("billing", "shipping"))
    broker = errand.world.broker
    broker.parked.append(replace(broker.halves[0], topic=DISCARD_TOPIC, commit_log_offset=broker._next()))
    assert errand.look().state is HalfState.ENDED
    broker.put_back(broker.halves[0])
    assert errand.look().state is HalfState.OPEN


def test_a_half_that_one_broker_has_parked_is_open_where_another_has_one() -> None:
    errand = Errand(*("billing", "shipping"))
    broker = errand.world.broker
    ghost = broker.put_back(broker.halves[0])
    broker.halves[-1] = replace(ghost, broker="broker-b")
    broker.parked.append(replace(broker.halves[0], topic=DISCARD_TOPIC, commit_log_offset=broker._next()))
    found = errand.look()
    assert found.state is HalfState.OPEN
    assert [half.broker for half in found.copies] == ["broker-b"]
