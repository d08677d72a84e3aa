"""Repairs that were opened, or sent, while the ledger's clock was ahead: no broker's index has to reach that time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.contract.tables import RepairState, Rung
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import Repair, RepairChange
from tests.contract.ledger.conftest import DatabaseWorld, World
from tests.contract.ledger.rows import key

DAYS_40_SECONDS = 40 * 86_400
LEASE_SECONDS = 60.0


def claimed(world: World | DatabaseWorld, token: str) -> Repair:
    rows = world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)]
    mine = world.ledger.repairs.claim(rows[0], token=token, lease_seconds=LEASE_SECONDS)
    assert mine is not None
    return mine


def test_times_of_a_clock_that_was_40_days_ahead_hold_a_repair_up_for_40_days(world: World) -> None:
    world.clock.step_wall(DAYS_40_SECONDS)
    world.ledger.repairs.open(world.environment, "ORDERS", key(1), rung=Rung.END)
    sent = RepairChange(state=RepairState.SENT, rung=Rung.END, counts_as_attempt=True, releases=True)
    assert world.ledger.repairs.change(claimed(world, "one"), sent, token="one") is not None
    world.clock.step_wall(-DAYS_40_SECONDS)
    mine = claimed(world, "two")
    now_ms = world.clock.now_ms()
    assert (mine.created_at_ms, mine.sent_at_ms) == (now_ms, now_ms)
    world.clock.advance(30)
    assert world.ledger.repairs.change(mine, RepairChange(state=mine.state, rung=Rung.END, releases=True), token="two")
    again = claimed(world, "three")
    assert (again.created_at_ms, again.sent_at_ms) == (now_ms, now_ms), "once"


@pytest.mark.parametrize("behind_seconds", [3_600.0, 86_400.0])
def test_a_ledger_clock_that_is_set_back_alone_shortens_what_a_broker_must_have_shown(
    database_world: DatabaseWorld, behind_seconds: float
) -> None:
    """The host's clock is right, and so are the times."""
    world = database_world
    world.ledger.repairs.open(world.environment, "ORDERS", key(1), rung=Rung.END)
    created_ms = world.clock.now_ms()
    world.clock.step_wall(-behind_seconds)
    host = ManualClock(created_ms)
    ledger = SqlLedger(
        world.ledger.database.engine, now=lambda _: sa.literal(world.clock.now_ms(), sa.BigInteger()), clock=host
    )
    assert claimed(replace(world, ledger=ledger), "one").created_at_ms == created_ms
