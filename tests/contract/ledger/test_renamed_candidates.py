"""Verdicts of a group that gets another name, in each database (SqlCandidates.rename)."""

from __future__ import annotations

from dataclasses import replace

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.database import ROWS_A_STATEMENT
from tests.contract.ledger.conftest import DatabaseWorld
from tests.contract.ledger.rows import key, shard, subscription, verification


def test_rows_of_a_renamed_group_keep_what_they_say_and_take_no_place_of_another(
    database_world: DatabaseWorld,
) -> None:
    world = database_world
    old, new = subscription(world.environment), subscription(world.environment, group="invoices")
    candidates, rows = world.ledger.candidates, range(ROWS_A_STATEMENT + 2)
    settled = [verification(n, Verdict.CONSUMED, CandidateState.SETTLED) for n in rows if n]
    candidates.record(shard(world.environment), [verification(0, Verdict.LOST_CONFIRM), *settled])
    candidates.record(shard(world.environment, group="invoices"), [verification(1, Verdict.RETRYING)])
    candidates.record(shard(world.environment, topic="OTHERS"), [verification(2)])
    before = candidates.of_keys(old, [key(n) for n in rows])
    assert candidates.rename(old, new) == len(rows) - 1
    assert candidates.rename(old, new) == 0
    assert set(candidates.of_keys(old, [key(n) for n in rows])) == {key(1)}
    after = dict(candidates.of_keys(new, [key(n) for n in rows]))
    assert after.pop(key(1)).verdict is Verdict.RETRYING
    assert after == {name: replace(row, subscription=new) for name, row in before.items() if name != key(1)}
    assert len(candidates.of_keys(subscription(world.environment, topic="OTHERS"), [key(2)])) == 1
