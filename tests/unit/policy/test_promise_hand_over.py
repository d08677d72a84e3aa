"""The row for every group follows the rows of its groups: SENT until all are DONE, FAILED if one is."""

from __future__ import annotations

from dataclasses import replace

from reconciler.contract.tables import RepairState, Rung
from reconciler.ports import Repair
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


def test_effects_of_workers_that_died_before_finishing_their_rows_do_not_close_the_repair() -> None:
    world, lost = handed_over()
    for group in ("billing", "shipping"):
        apply(world, lost, group)
    world.rounds(world.process(), 8)
    assert row(world, lost).state is RepairState.SENT
    world.replay()  # the next workers find the effects and finish the rows
    world.rounds(world.process(), 12)
    assert row(world, lost).state is RepairState.DONE
    assert world.ledger.hand_overs.message_of(row(world, lost, "billing")) is None


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
    _, outcome = process.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, outcome.rung) == ("sent", Rung.HAND_OVER)
    process.repair_one(world.subscriptions[1], lost)
    world.replay()
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
    _, outcome = process.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert outcome.outcome == "sent"
    for _ in range(40):
        world.clock.advance(5)
        world.consume(effects=False)
        process.run(world.subscriptions[0])
        world.replay()
    assert (row(world, lost).state, row(world, lost, "billing").state) == (RepairState.DONE, RepairState.DONE)
    assert world.verdict(lost) == "CONSUMED"


def test_a_failed_hand_over_whose_effect_came_another_way_is_ended_by_its_worker() -> None:
    world, lost = handed_over()
    process = world.process()
    failed = replace(row(world, lost, "shipping"), state=RepairState.FAILED, answer="a bug")
    for group in ("billing", "shipping"):
        apply(world, lost, group)
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "shipping", lost] = failed
    world.rounds(process, 12)
    for subscription in world.subscriptions:
        process.repair_one(subscription, lost)
    world.replay()
    world.rounds(process, 12)
    assert {row(world, lost, scope).state for scope in ("*", "billing", "shipping")} == {RepairState.DONE}


def fail_hand_over(world: World, unique_key: str) -> None:
    """Its worker has given up."""
    known = world.repair(unique_key, "billing")
    if known is not None:
        world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "billing", unique_key] = replace(
            known, state=RepairState.FAILED, attempts=16, answer="a bug"
        )
