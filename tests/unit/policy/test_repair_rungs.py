"""Where a repair starts on the ladder and when it climbs, on a broker in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest

from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.events import RepairStepped
from reconciler.policy.evidence import EndOutcome
from reconciler.policy.round import ReconcileRound
from tests.unit.policy.repair_rows import END_ONLY, copies, ended, say
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World


def lost_until_end(world: World) -> tuple[ReconcileRound, str]:
    """A loss, and rounds until its END was sent."""
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    return process, lost


def ended_in_vain(world: World) -> tuple[ReconcileRound, str]:
    """The same, and the groups acknowledge the copy without an effect."""
    process, lost = lost_until_end(world)
    world.consume(effects=False)
    return process, lost


def handed_over(world: World) -> tuple[ReconcileRound, str]:
    """A loss whose ladder is the hand-over, and rounds until its rows are there."""
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 4)
    return process, lost


# ---- the next rung


def test_copy_that_a_group_acknowledged_without_an_effect_climbs_to_the_hand_over() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    for _ in range(40):
        world.clock.advance(5)
        world.consume(effects=False)
        process.run(world.subscriptions[0])
        world.run_replay_workers()
    row = ended(world, lost)
    assert (row.state, row.rung, row.attempts) == (RepairState.DONE, Rung.HAND_OVER, 3)
    assert copies(world, lost) == 2
    rungs = [e.rung for e in world.events.of(RepairStepped)]
    assert [rung for rung, _ in groupby(rungs)] == [Rung.END, Rung.REPUBLISH, Rung.HAND_OVER]


@pytest.mark.parametrize(("seconds", "climbs"), [(19.9, False), (20.0, True), (20.1, True)])
def test_next_rung_is_taken_two_grace_periods_after_the_send_and_no_earlier(seconds: float, climbs: bool) -> None:
    world = World(repair_order=(Rung.END, Rung.REPUBLISH))
    process, lost = ended_in_vain(world)
    sent_at = ended(world, lost).sent_at_ms
    assert sent_at is not None
    world.clock.advance(seconds - (world.clock.now_ms() - sent_at) / 1000)
    process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert bool(world.broker.republished) == climbs


def test_lagging_group_is_waited_for_and_gets_no_second_copy() -> None:
    world = World(groups=("billing", "slow"))
    lost = world.lose(1)
    process = world.process()
    for _ in range(40):
        world.clock.advance(5)
        world.consume("billing")
        for subscription in world.subscriptions:
            process.run(subscription)
    assert (ended(world, lost).state, copies(world, lost)) == (RepairState.SENT, 1)
    world.rounds(process, 20)
    assert (ended(world, lost).state, copies(world, lost)) == (RepairState.DONE, 1)


@pytest.mark.parametrize(("kind", "state"), [("retry", RepairState.SENT), ("dead-letter", RepairState.FAILED)])
def test_failing_group_is_not_repaired_over_and_over(kind: str, state: RepairState) -> None:
    world = World()
    process, lost = ended_in_vain(world)
    world.broker.in_group_topic("billing", kind, world.broker.copies[0], topic="SCHEDULE_TOPIC_XXXX")
    world.rounds(process, 16)
    assert (ended(world, lost).state, copies(world, lost)) == (state, 1)
    if state is RepairState.FAILED:
        assert world.verdict(lost) == "DEAD_LETTERED"


@pytest.mark.parametrize("what", ["positions", "inbox"])
def test_group_whose_standing_is_unknown_is_waited_for(what: str) -> None:
    world = World()
    process, lost = ended_in_vain(world)
    if what == "positions":
        world.broker.positions_known = False
    else:
        world.inbox.away = True
    world.rounds(process, 12)
    assert (ended(world, lost).state, copies(world, lost)) == (RepairState.SENT, 1)


def test_effect_that_appears_while_the_standing_is_asked_ends_the_repair_and_is_no_reason_to_climb() -> None:
    world = World()
    process, lost = ended_in_vain(world)
    world.clock.advance(21)
    # Read once for the batch, then once more after the positions.
    world.inbox.later.append((world.inbox.reads + 2, world.inbox_row("billing", lost)))
    process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert (ended(world, lost).state, world.broker.republished) == (RepairState.DONE, [])


def test_copy_that_the_broker_lost_again_is_sent_again() -> None:
    world = World()
    process, lost = lost_until_end(world)
    world.broker.copies = []
    world.rounds(process, 16)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.DONE, 2, 1)


def test_retry_after_a_climb_does_not_send_beside_a_copy_that_is_still_to_come() -> None:
    """OPEN with attempts and a copy the group has not reached: it is waited for."""
    world = World(repair_order=(Rung.END, Rung.REPUBLISH))
    world.broker.scripted = [say(EndOutcome.REFUSED_FOR_NOW, 2)]
    process, lost = lost_until_end(world)
    world.broker.commit(world.broker.halves[0])
    world.clock.advance(30)
    process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.SENT, 1, 1)


# ---- where losses start


def test_parked_message_starts_at_republish() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.parked, world.broker.halves = world.broker.halves, []
    world.rounds(world.process(), 10)
    row = ended(world, lost)
    assert (row.state, row.rung, world.broker.ends) == (RepairState.DONE, Rung.REPUBLISH, [])


def test_wrongly_rolled_back_message_is_republished() -> None:
    world = World()
    world.broker.rollback_evident_after = 20.0
    lost = world.lose(1)
    world.clock.advance(30)
    world.rounds(world.process(), 12)
    row = ended(world, lost)
    assert (row.state, row.rung, copies(world, lost)) == (RepairState.DONE, Rung.REPUBLISH, 1)
    candidate = world.candidate(lost)
    assert candidate is not None
    assert candidate.loss_verdict is Verdict.ROLLED_BACK_WRONGLY


@pytest.mark.promise("L3")
def test_expired_message_without_a_body_is_quarantined() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.halves = []
    world.rounds(world.process(), 10)
    assert ended(world, lost).state is RepairState.FAILED
    candidate = world.candidate(lost)
    assert candidate is not None
    assert (candidate.loss_verdict, candidate.state) == (Verdict.EXPIRED, CandidateState.QUARANTINED)


def test_expired_message_of_a_ladder_with_end_only_is_quarantined() -> None:
    world = World(repair_order=END_ONLY)
    lost = world.lose(1)
    world.broker.halves = []
    world.rounds(world.process(), 10)
    assert ended(world, lost).state is RepairState.FAILED


@pytest.mark.parametrize("witness", ["halves", "parked"])
def test_republish_waits_for_a_readable_copy(witness: str) -> None:
    world = World(repair_order=(Rung.REPUBLISH,))
    process, lost = world.proved_loss()
    world.broker.halves = []
    world.broker.unknown.add(witness)
    world.rounds(process, 3)
    assert (ended(world, lost).state, world.broker.republished) == (RepairState.OPEN, [])


# ---- hand-over


def test_hand_over_goes_to_every_group_that_takes_the_tag_and_has_no_effect() -> None:
    world = World(groups=("billing", "shipping", "refunds"), tags={"refunds": frozenset({"refund"})},
                  repair_order=(Rung.HAND_OVER,))  # fmt: skip
    process, lost = handed_over(world)
    scopes = {row.scope for row in world.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, [lost])[lost]}
    assert scopes == {"*", "billing", "shipping"}
    assert ended(world, lost).state is RepairState.SENT
    world.run_replay_workers()
    world.rounds(process, 8)
    assert ended(world, lost).state is RepairState.DONE
    assert copies(world, lost) == 0
    # The half is closed, so that no producer is asked about it any more.
    assert [commit for _, _, commit in world.broker.ends] == [False]


def test_hand_over_that_one_group_fails_is_failed() -> None:
    world = World(groups=("billing", "shipping"), repair_order=(Rung.HAND_OVER,))
    process, lost = handed_over(world)
    row = world.repair(lost, "shipping")
    assert row is not None
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "shipping", lost] = replace(row, state=RepairState.FAILED)
    world.rounds(process, 8)
    assert ended(world, lost).state is RepairState.FAILED
    assert world.verdict(lost, "shipping") == "QUARANTINED"


def test_hand_over_that_is_done_counts_where_no_inbox_tells() -> None:
    world = World(repair_order=(Rung.HAND_OVER,))
    world.inbox.configured = False
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 4, consume=False)
    world.run_replay_workers()
    world.rounds(process, 8, consume=False)
    assert ended(world, lost).state is RepairState.DONE


def test_hand_over_without_rows_is_followed_like_any_other_send() -> None:
    world = World(repair_order=(Rung.HAND_OVER,))
    process, lost = handed_over(world)
    del world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "billing", lost]
    world.rounds(process, 12)
    assert world.repair(lost, "billing") is not None
