"""An inbox row whose handler committed halfway is no effect and no absence, until a person ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.round import ReconcileRound
from tests.unit.policy.judging import judged, reason
from tests.unit.policy.test_double_effects import TwoInboxes
from tests.unit.policy.world import ENVIRONMENT, World, key


def consumed_halfway(world: World, unique_key: str, group: str = "billing") -> None:
    """The handler committed before it returned; the redelivery is refused, so that nothing is recorded."""
    row = world.inbox_row(group, unique_key, world.outbox.rows[unique_key].content_digest)
    world.inbox.rows[group, unique_key] = replace(row, incomplete="7")


def incomplete() -> tuple[World, ReconcileRound, str]:
    world = World()
    delivered = world.deliver(1)
    world.consume(effects=False)
    consumed_halfway(world, delivered)
    process = world.process()
    world.rounds(process, 6)
    return world, process, delivered


def closed_as(world: World, unique_key: str) -> tuple[CandidateState, Verdict]:
    candidate = world.candidate(unique_key)
    assert candidate is not None
    return candidate.state, candidate.verdict


def test_half_an_effect_waits_for_a_person_and_says_why() -> None:
    world, _, delivered = incomplete()
    assert closed_as(world, delivered) == (CandidateState.QUARANTINED, Verdict.INCOMPLETE)
    assert world.pending() == []
    entry = judged(world, delivered)
    assert "incomplete" in reason(entry)
    assert world.broker.look_ups == [], "no broker is asked"


def test_an_accepted_row_is_an_effect_without_another_announcement() -> None:
    world, process, delivered = incomplete()
    world.inbox.rows["billing", delivered] = replace(world.inbox.rows["billing", delivered], incomplete=None)
    world.rounds(process, 20, consume=False)
    assert closed_as(world, delivered) == (CandidateState.SETTLED, Verdict.CONSUMED)


def test_a_row_that_is_gone_is_judged_by_what_there_is() -> None:
    world, process, delivered = incomplete()
    del world.inbox.rows["billing", delivered]
    world.rounds(process, 20, consume=False)
    assert closed_as(world, delivered) == (CandidateState.QUARANTINED, Verdict.DELIVERED_NOT_APPLIED)


def test_half_an_effect_in_a_second_inbox_takes_the_verdict_on_the_first_one_back() -> None:
    world = World()
    TwoInboxes(world)
    delivered = world.deliver(1)
    world.consume(records=False)
    process = world.process()
    world.rounds(process, 4)
    assert closed_as(world, delivered) == (CandidateState.SETTLED, Verdict.CONSUMED)
    consumed_halfway(world, delivered)
    world.announce(delivered)
    world.rounds(process, 6, consume=False)
    assert closed_as(world, delivered) == (CandidateState.QUARANTINED, Verdict.INCOMPLETE)


def test_a_repair_neither_ends_nor_sends_for_a_group_with_half_an_effect() -> None:
    """One that was opened before: the effect came another way, halfway."""
    world = World()
    process, lost = world.proved_loss()
    repair = world.repair(lost)
    assert repair is not None
    sent = repair.attempts
    for plan in world.topic.subscriptions:
        world.inbox.rows.pop((plan.group, lost), None)
        consumed_halfway(world, lost, plan.group)
    world.rounds(process, 40, consume=False)
    repair = world.repair(lost)
    assert repair is not None
    assert repair.state not in (RepairState.DONE, RepairState.FAILED)
    assert repair.attempts == sent
    for plan in world.topic.subscriptions:
        row = world.inbox.rows[plan.group, lost]
        world.inbox.rows[plan.group, lost] = replace(row, incomplete=None)
    world.rounds(process, 40, consume=False)
    repair = world.repair(lost)
    assert repair is not None
    assert repair.state is RepairState.DONE


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_scan_puts_no_half_effect_into_the_commit_sets(by_hand: bool) -> None:
    world = World(shards=1)
    whole, half = world.deliver(1), world.deliver(2)
    world.consume(effects=False)
    world.inbox.rows["billing", whole] = world.inbox_row("billing", whole)
    consumed_halfway(world, half)
    if by_hand:
        world.recovery(page_rows=1).rebuild(ENVIRONMENT, since_ms=0)
    else:
        world.rounds(world.process(), 1, every=0, consume=False)
        world.shards.wipe()
        world.rounds(world.process(), 1, every=0, consume=False)
        assert world.recovery(page_rows=1).run(ENVIRONMENT) is not None
    world.announce(whole, half)
    world.rounds(world.process(), 6, consume=False)
    assert (world.verdict(key(1)), world.verdict(key(2))) == (None, "INCOMPLETE")
