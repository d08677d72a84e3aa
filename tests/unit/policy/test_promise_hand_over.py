"""The row for every group follows the rows of its groups: SENT until all are DONE, FAILED if one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reconciler.contract.tables import HoldKind, RepairState, Rung
from reconciler.policy.ports.ledger import Repair, RepairChange
from reconciler.policy.repairing.repair import WITHDRAWN
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World


def handed_over() -> tuple[World, str]:
    """A lost message in the hands of two replay workers."""
    world = World(groups=("billing", "shipping"), repair_order=(Rung.HAND_OVER,))
    lost = world.lose(1)
    world.rounds(world.process(), 4)
    assert row(world, lost).state is RepairState.SENT
    return world, lost


def row(world: World, unique_key: str, scope: str = "*") -> Repair:
    found = world.repair(unique_key, scope)
    assert found is not None
    return found


def apply(world: World, unique_key: str, group: str) -> None:
    """The worker's transaction has committed; its row is not finished yet."""
    message = world.ledger.hand_overs.message_of(row(world, unique_key, group))
    assert message is not None
    world.apply(group, message)


def claim(world: World, unique_key: str, group: str, *, lease_seconds: float = 60) -> Repair:
    """A worker has the row and runs it."""
    claimed = world.ledger.repairs.claim(row(world, unique_key, group), token="worker", lease_seconds=lease_seconds)
    assert claimed is not None
    begun = RepairChange(state=RepairState.SENDING, rung=Rung.HAND_OVER, counts_as_attempt=True)
    running = world.ledger.repairs.change(claimed, begun, token="worker")
    assert running is not None
    return running


def test_effects_of_workers_that_have_not_finished_their_rows_do_not_close_the_repair() -> None:
    world, lost = handed_over()
    running = [claim(world, lost, group) for group in ("billing", "shipping")]
    for group in ("billing", "shipping"):
        apply(world, lost, group)
    world.rounds(world.process(), 8)
    assert row(world, lost).state is RepairState.SENT
    assert {row(world, lost, group).token for group in ("billing", "shipping")} == {"worker"}
    for one in running:
        assert world.ledger.hand_overs.finish(one, token="worker", answer="applied") is not None
    world.rounds(world.process(), 12)
    assert row(world, lost).state is RepairState.DONE
    assert row(world, lost, "billing").answer == "applied"
    assert world.ledger.hand_overs.message_of(row(world, lost, "billing")) is None


def test_the_row_of_a_worker_that_died_after_its_effect_is_ended_by_the_repair() -> None:
    world, lost = handed_over()
    for group in ("billing", "shipping"):
        claim(world, lost, group, lease_seconds=30)
        apply(world, lost, group)
    world.rounds(world.process(), 5)
    assert row(world, lost).state is RepairState.SENT
    world.rounds(world.process(), 12)
    assert row(world, lost).state is RepairState.DONE
    assert {row(world, lost, group).answer_fact for group in ("billing", "shipping")} == {WITHDRAWN}


def test_what_no_worker_has_run_is_not_run_after_the_effect_came_another_way_and_its_inbox_row_was_deleted() -> None:
    """No worker ran. Months later the outbox row is settled, the inbox row purged by age, and one is started."""
    world, lost = handed_over()
    for group in ("billing", "shipping"):
        apply(world, lost, group)
    world.rounds(world.process(), 12)
    assert row(world, lost).state is RepairState.DONE
    world.inbox.rows.clear()
    world.clock.advance(100 * 86_400)
    world.run_replay_workers()
    assert not world.inbox.rows
    assert {row(world, lost, group).state for group in ("billing", "shipping")} == {RepairState.DONE}
    assert world.ledger.hand_overs.message_of(row(world, lost, "billing")) is None


def test_the_row_of_a_group_that_has_its_effect_is_withdrawn_while_another_group_still_waits_for_its_worker() -> None:
    world, lost = handed_over()
    apply(world, lost, "billing")
    world.rounds(world.process(), 12)
    assert (row(world, lost, "billing").state, row(world, lost, "billing").answer_fact) == (RepairState.DONE, WITHDRAWN)
    assert (row(world, lost).state, row(world, lost, "shipping").state) == (RepairState.SENT, RepairState.OPEN)
    world.run_replay_workers()
    world.rounds(world.process(), 12)
    assert row(world, lost).state is RepairState.DONE
    assert ("shipping", lost) in world.inbox.rows


def test_a_row_is_withdrawn_before_the_failure_of_another_ends_the_repair() -> None:
    """No worker looks at the rows of a repair that has FAILED."""
    world, lost = handed_over()
    failed = replace(row(world, lost, "shipping"), state=RepairState.FAILED, answer="Collision")
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "shipping", lost] = failed
    apply(world, lost, "billing")
    world.rounds(world.process(), 12)
    assert (row(world, lost).state, row(world, lost, "billing").answer_fact) == (RepairState.FAILED, WITHDRAWN)


def test_the_row_of_a_group_that_is_not_configured_any_more_is_left_to_its_worker() -> None:
    """Whether it lacks the effect is not known: its inbox is not looked into."""
    world, lost = handed_over()
    one_group = replace(world.topic, subscriptions=world.topic.subscriptions[:1])
    world.topic, world.subscriptions = one_group, world.subscriptions[:1]
    apply(world, lost, "billing")
    world.rounds(world.process(), 12)
    assert row(world, lost, "billing").answer_fact == WITHDRAWN
    assert (row(world, lost).state, row(world, lost, "shipping").state) == (RepairState.SENT, RepairState.OPEN)


def test_a_worker_that_takes_its_row_while_the_repair_withdraws_it_keeps_it() -> None:
    world, lost = handed_over()
    for group in ("billing", "shipping"):
        apply(world, lost, group)
    claim_all, taken = world.ledger.repairs.claim_all, list[Repair]()

    def slower(claims: Sequence[tuple[Repair, str]], *, lease_seconds: float) -> Sequence[Repair | None]:
        if not taken and claims[0][0].scope == "billing":
            taken.append(claim(world, lost, "billing"))
        return claim_all(claims, lease_seconds=lease_seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.ledger.repairs, "claim_all", slower)
        world.rounds(world.process(), 8)
    assert (row(world, lost).state, row(world, lost, "shipping").answer_fact) == (RepairState.SENT, WITHDRAWN)
    assert row(world, lost, "billing").token == "worker"
    assert world.ledger.hand_overs.finish(taken[0], token="worker", answer="applied") is not None
    world.rounds(world.process(), 12)
    assert row(world, lost).state is RepairState.DONE


def test_a_hold_does_not_keep_a_row_alive_whose_effect_is_there() -> None:
    world, lost = handed_over()
    for group in ("billing", "shipping"):
        apply(world, lost, group)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="anna", reason="a release")
    world.rounds(world.process(), 12)
    assert {row(world, lost, group).answer_fact for group in ("billing", "shipping")} == {WITHDRAWN}


def test_a_group_whose_hand_over_failed_is_shown_although_the_effect_came_another_way() -> None:
    world, lost = handed_over()
    failed = replace(row(world, lost, "shipping"), state=RepairState.FAILED, answer="Collision")
    for group in ("billing", "shipping"):
        apply(world, lost, group)
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "shipping", lost] = failed
    world.rounds(world.process(), 12)
    assert row(world, lost).state is RepairState.FAILED
    assert "shipping failed: Collision" in str(row(world, lost).answer)


def test_an_operator_hands_over_again_what_a_mended_handler_had_failed() -> None:
    world, lost = handed_over()
    process = world.process()
    failed = replace(row(world, lost, "billing"), state=RepairState.FAILED, attempts=16, answer="a bug")
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "billing", lost] = failed
    world.rounds(process, 8)
    assert row(world, lost).state is RepairState.FAILED
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, outcome.rung) == ("sent", Rung.HAND_OVER)
    process.keys_by_hand.repair_one(world.subscriptions[1], lost)
    world.run_replay_workers()
    world.rounds(process, 12)
    assert (row(world, lost).state, row(world, lost, "billing").state) == (RepairState.DONE, RepairState.DONE)
    assert {world.verdict(lost, group) for group in ("billing", "shipping")} == {"CONSUMED"}


def test_an_operator_sends_again_what_a_group_had_acknowledged_without_an_effect() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    for _ in range(60):
        world.clock.advance(5)
        world.consume(effects=False)
        process.run(world.subscriptions[0])
        fail_hand_over(world, lost)
    assert (row(world, lost).state, row(world, lost, "billing").state) == (RepairState.FAILED, RepairState.FAILED)
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert outcome.outcome == "sent"
    for _ in range(40):
        world.clock.advance(5)
        world.consume(effects=False)
        process.run(world.subscriptions[0])
        world.run_replay_workers()
    assert (row(world, lost).state, row(world, lost, "billing").state) == (RepairState.DONE, RepairState.DONE)
    assert world.verdict(lost) == "CONSUMED"


def test_a_failed_hand_over_whose_effect_came_another_way_is_ended_by_an_operators_repair() -> None:
    world, lost = handed_over()
    process = world.process()
    failed = replace(row(world, lost, "shipping"), state=RepairState.FAILED, answer="a bug")
    for group in ("billing", "shipping"):
        apply(world, lost, group)
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "shipping", lost] = failed
    world.rounds(process, 12)
    for subscription in world.subscriptions:
        process.keys_by_hand.repair_one(subscription, lost)
    assert world.ledger.repairs.claimable(ENVIRONMENT, TOPIC, scope="shipping", limit=1) == []
    world.rounds(process, 12)
    assert {row(world, lost, scope).state for scope in ("*", "billing", "shipping")} == {RepairState.DONE}


def fail_hand_over(world: World, unique_key: str) -> None:
    """Its worker has given up."""
    known = world.repair(unique_key, "billing")
    if known is not None:
        world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "billing", unique_key] = replace(
            known, state=RepairState.FAILED, attempts=16, answer="a bug"
        )
