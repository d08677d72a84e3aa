"""A key in two inboxes of one group took effect twice: never plain CONSUMED, whenever the second effect is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from reconciler.contract.stored_facts import is_double_effect
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import InboxRow, Lookup
from tests.unit.policy.test_dismissal import dismiss
from tests.unit.policy.world import World


class TwoInboxes:
    """Another database of the group beside the world's."""

    def __init__(self, world: World) -> None:
        self._first = world.inbox.look_up
        self._world = world
        self.doubled: set[str] = set()
        world.inbox.look_up = self.look_up  # type: ignore[method-assign]
        plans = tuple(replace(plan, has_several_inboxes=True) for plan in world.topic.subscriptions)
        world.topic = replace(world.topic, subscriptions=plans)

    def look_up(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        found = dict(self._first(subscription, unique_keys))
        for key in self.doubled & found.keys():
            second = self._world.inbox_row(subscription.group, key)
            found[key] = replace(found[key], records=(*found[key].records, second))
        return found


def test_a_key_in_two_inboxes_is_a_collision_and_says_why() -> None:
    world = World()
    second = TwoInboxes(world)
    delivered = world.deliver(1)
    second.doubled.add(delivered)
    world.consume(records=False)
    world.rounds(world.process(), 4)
    candidate = world.candidate(delivered)
    assert candidate is not None
    assert (candidate.state, candidate.verdict) == (CandidateState.QUARANTINED, Verdict.COLLISION)
    assert is_double_effect(candidate.evidence)
    assert is_double_effect({"reason": candidate.evidence["reason"]}), "0.2.0 writes no code"
    assert world.pending() == []


@pytest.mark.parametrize("is_repaired", [False, True])
def test_a_second_effect_that_comes_after_the_verdict_takes_it_back(is_repaired: bool) -> None:
    """The sweeper announces such a key again: a row that says CONSUMED must not close it unseen."""
    world = World()
    second = TwoInboxes(world)
    key = world.lose(1) if is_repaired else world.deliver(1)
    if not is_repaired:
        world.consume(records=False)
    process = world.process()
    world.rounds(process, 10)
    consumed = world.candidate(key)
    assert consumed is not None
    assert (consumed.state, consumed.verdict) == (CandidateState.SETTLED, Verdict.CONSUMED)
    second.doubled.add(key)
    world.announce(key)
    world.rounds(process, 6)
    candidate = world.candidate(key)
    assert candidate is not None
    assert (candidate.state, candidate.verdict) == (CandidateState.QUARANTINED, Verdict.COLLISION)
    assert candidate.loss_verdict is consumed.loss_verdict
    repair = world.repair(key)
    assert repair is None or repair.state is RepairState.DONE


def test_a_consumed_key_that_is_announced_again_stays_consumed() -> None:
    world = World()
    TwoInboxes(world)
    delivered = world.deliver(1)
    world.consume(records=False)
    process = world.process()
    world.rounds(process, 4)
    world.announce(delivered)
    events = [report.event for _ in range(4) for report in world.rounds(process, 1)]
    candidate = world.candidate(delivered)
    assert candidate is not None
    assert (candidate.state, candidate.verdict) == (CandidateState.SETTLED, Verdict.CONSUMED)
    assert world.pending() == []
    # It was looked at, and is no key that the breaker would expect a loss among.
    assert sum(event.verified for event in events if event is not None) == 1
    assert sum(event.became_due for event in events if event is not None) == 0


def test_a_double_effect_that_a_person_dismissed_is_not_asked_for_again() -> None:
    world = World()
    second = TwoInboxes(world)
    delivered = world.deliver(1)
    second.doubled.add(delivered)
    world.consume(records=False)
    process = world.process()
    world.rounds(process, 4)
    assert dismiss(world, unique_key=delivered) == {"billing": "dismissed"}
    world.announce(delivered)
    world.rounds(process, 4)
    candidate = world.candidate(delivered)
    assert candidate is not None
    assert (candidate.state, candidate.verdict) == (CandidateState.SETTLED, Verdict.COLLISION)
    assert world.pending() == []
