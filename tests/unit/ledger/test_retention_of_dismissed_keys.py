"""A key that a person has seen to is announced again for years: the ledger must not forget that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from reconciler.contract.tables import RepairState
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.dismissal import Dismissals
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.ledger import RepairChange
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from reconciler.words import said
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

KEEP_DAYS = 90


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world whose ledger is SQLite by the world's clock: retention is the SQL adapter's."""
    made = World(shards=1)
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    ledger_metadata.create_all(engine)
    made.ledger = cast(
        Any, SqlLedger(engine, now=lambda _: sa.literal(made.clock.now_ms(), sa.BigInteger()), english=said)
    )
    yield made
    engine.dispose()


def dismiss(world: World) -> None:
    dismissals = Dismissals(closings=world.ledger.closings, configured=world.subscriptions)
    life = world.ledger.reports.life(ENVIRONMENT, key(1))
    rows = KeyInLedger(candidates=life.candidates, repairs=life.repairs)
    told = dismissals.dismiss(rows, group=None, by="anna", reason="refunded by hand")
    assert told == {"billing": "dismissed"}


def announced_again_after_the_ledgers_time(world: World) -> None:
    """The brokers have deleted all; the sweeper announces the outbox row that no inbox has."""
    world.broker.halves.clear()
    world.broker.copies.clear()
    world.broker.offsets.clear()
    world.clock.advance((KEEP_DAYS + 1) * 86_400)
    SqlRetention(cast(Any, world.ledger).database, keep_days=KEEP_DAYS).delete_old(ENVIRONMENT)
    world.announce(key(1))
    world.rounds(world.process(), 20)


def test_a_dismissed_message_is_not_sent_when_it_is_announced_again_after_keep_days(world: World) -> None:
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half, body=b"body", properties={"user": "value"})
    world.broker.commit(half)
    world.announce(key(1))
    world.consume(effects=False)
    world.rounds(world.process(), 10, consume=False)
    assert world.verdict(key(1)) == "DELIVERED_NOT_APPLIED"
    dismiss(world)
    announced_again_after_the_ledgers_time(world)
    assert world.broker.republished == []
    assert world.verdict(key(1)) == "DELIVERED_NOT_APPLIED"


def test_a_dismissed_repair_is_not_made_again_after_keep_days(world: World) -> None:
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half, body=b"body", properties={"user": "value"})
    world.announce(key(1))
    process = world.process()
    for _ in range(60):
        world.clock.advance(5)
        world.consume(effects=False)
        process.run(world.subscriptions[0])
        fail_hand_overs(world)
    assert getattr(world.repair(key(1)), "state", None) is RepairState.FAILED
    sent = len(world.broker.republished)
    dismiss(world)
    announced_again_after_the_ledgers_time(world)
    assert len(world.broker.republished) == sent
    assert {scope: getattr(world.repair(key(1), scope), "state", None) for scope in ("*", "billing")} == {
        "*": RepairState.DONE,
        "billing": RepairState.DONE,
    }


def test_a_key_that_was_settled_by_evidence_is_deleted_as_before(world: World) -> None:
    world.lose(1)
    world.rounds(world.process(), 20)
    assert world.verdict(key(1)) == "CONSUMED"
    world.clock.advance((KEEP_DAYS + 1) * 86_400)
    deleted = SqlRetention(cast(Any, world.ledger).database, keep_days=KEEP_DAYS).delete_old(ENVIRONMENT)
    assert (deleted.candidates, deleted.repairs) == (1, 1)


def fail_hand_overs(world: World) -> None:
    """The worker's handler is broken."""
    for row in world.ledger.repairs.claimable(ENVIRONMENT, TOPIC, scope="billing", limit=10):
        claimed = world.ledger.repairs.claim(row, token="worker", lease_seconds=60)
        assert claimed is not None
        failed = RepairChange(state=RepairState.FAILED, rung=row.rung, answer="a bug")
        world.ledger.repairs.change(claimed, failed, token="worker")
