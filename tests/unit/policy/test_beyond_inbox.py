"""A message older than inbox rows get: that its row is missing proves nothing, so it is never sent again."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import REPAIR_ORDER_DEFAULT, CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.plan import INBOX_MARGIN_SECONDS
from tests.unit.policy.world import World, key

KEEP = 10 * 86_400.0
REACH = KEEP - INBOX_MARGIN_SECONDS


def old_world(*, age: float, keep: dict[str, float], repair_order: tuple[Rung, ...] = REPAIR_ORDER_DEFAULT) -> World:
    """A message whose END was lost long ago, with rounds that have just heard of it."""
    world = World(shards=1, groups=("billing", "shipping"), inbox_keep_seconds=keep, repair_order=repair_order)
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half, body=b"body")
    world.clock.advance(age)
    world.announce(key(1))
    return world


@pytest.mark.parametrize("rung", list(Rung))
def test_a_deleted_inbox_row_is_not_taken_for_a_missing_effect_by_any_rung(rung: Rung) -> None:
    """Billing had its effect long ago and deleted the row; shipping, which keeps its rows for ever, has none."""
    world = old_world(age=KEEP + 60, keep={"billing": KEEP}, repair_order=(rung,))
    world.rounds(world.process(), 30)
    assert (world.broker.ends, world.broker.republished, world.repair(key(1), "billing")) == ([], [], None)
    assert (world.verdict(key(1), "billing"), world.verdict(key(1), "shipping")) == ("QUARANTINED", "QUARANTINED")
    repair = world.repair(key(1))
    assert repair is not None
    assert repair.state is RepairState.FAILED
    assert repair.answer == "older than inbox_keep_days of billing: its inbox row may have been deleted"
    assert world.pending() == []


def test_a_message_that_every_inbox_still_knows_is_repaired() -> None:
    world = old_world(age=REACH - 600, keep={"billing": KEEP, "shipping": KEEP})
    world.rounds(world.process(), 30)
    assert len(world.broker.ends) == 1
    assert world.verdict(key(1), "billing") == world.verdict(key(1), "shipping") == "CONSUMED"


@pytest.mark.parametrize(("age", "sends"), [(REACH - 61, 1), (REACH - 60, 0), (REACH - 59, 0)])
def test_the_last_moment_for_a_repair(age: float, sends: int) -> None:
    world = World(shards=1, inbox_keep_seconds={"billing": KEEP})
    lost = world.lose(1)
    world.clock.advance(60)
    process = world.process()
    subscription = world.subscriptions[0]
    process.keys_by_hand.judge_one(subscription, lost)
    world.clock.advance(age)
    process.keys_by_hand.repair_one(subscription, lost)
    assert len(world.broker.ends) == sends


def test_a_half_without_an_outbox_counts_from_its_birth() -> None:
    world = World(shards=1, inbox_keep_seconds={"billing": KEEP}, trust_announcements=True)
    world.broker.send_half(key(1))
    world.clock.advance(KEEP)
    world.announce(key(1))
    world.rounds(world.process(), 10)
    candidate = world.candidate(key(1))
    assert candidate is not None
    assert (candidate.verdict, candidate.state) == (Verdict.QUARANTINED, CandidateState.QUARANTINED)
    assert world.broker.ends == []
