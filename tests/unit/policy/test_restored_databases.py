"""A database came back from a backup, or its rows were deleted by hand: what is decided, and what is not sent."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import RepairState
from reconciler.testing.memory import MemoryLedger
from reconciler.words import said
from tests.unit.policy.world import World


@pytest.mark.set_up("the ledger restored from a backup")
def test_a_ledger_from_before_the_repair_sends_nothing_a_second_time() -> None:
    world = World()
    lost = world.lose(1)
    world.rounds(world.process(), 10)
    repair = world.repair(lost)
    assert repair is not None
    assert repair.state is RepairState.DONE
    world.ledger = MemoryLedger(world.clock, english=said)
    world.announce(lost)
    world.rounds(world.process(), 10)
    assert len(world.broker.ends) == 1
    assert world.deliveries == [("billing", lost)]
    assert world.verdict(lost, "billing") == "CONSUMED"


def test_a_ledger_that_forgets_a_repair_under_way_waits_for_its_effect() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1, consume=False)
    world.ledger = MemoryLedger(world.clock, english=said)
    world.announce(lost)
    world.rounds(world.process(), 10)
    assert len(world.broker.ends) == 1
    assert world.deliveries == [("billing", lost)]
    assert world.pending() == []


@pytest.mark.set_up("an inbox restored from a backup")
def test_an_inbox_from_before_the_effect_is_told_and_nothing_is_sent() -> None:
    world = World()
    fine = world.deliver(1)
    world.consume(records=False)
    world.inbox.rows.clear()
    world.rounds(world.process(), 10)
    assert world.verdict(fine, "billing") == "DELIVERED_NOT_APPLIED"
    assert world.broker.ends == []


@pytest.mark.set_up("an outbox restored from a backup, or rows purged by hand")
def test_an_outbox_row_that_is_gone_is_no_commit_and_nothing_is_sent() -> None:
    world = World()
    lost = world.lose(1)
    del world.outbox.rows[lost]
    world.rounds(world.process(), 10)
    assert world.verdict(lost, "billing") == "REJECTED"
    assert world.broker.ends == []
    assert world.deliveries == []


@pytest.mark.set_up("an outbox row purged after its effect")
def test_an_outbox_row_that_was_deleted_after_the_effect_changes_nothing() -> None:
    world = World()
    fine = world.deliver(1)
    world.consume(records=False)
    world.outbox.rows.clear()
    world.rounds(world.process(), 10)
    assert world.verdict(fine, "billing") == "CONSUMED"
