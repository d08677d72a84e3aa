"""unique_key_topic.queues was changed: open rows of the ledger name shards that are others now, or are no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.tables import RepairState
from reconciler.contract.unique_key import shard_of
from reconciler.contract.verdicts import Verdict
from reconciler.policy.repairing.repair import RepairRules
from tests.unit.policy.world import World, key


@pytest.mark.parametrize("gone", [2, 3])
@pytest.mark.parametrize("gate", ["open", "shut"])
def test_an_open_row_of_a_shard_that_is_no_more_is_looked_at_where_its_key_is_pending_now(gate: str, gone: int) -> None:
    """unique_key_topic.queues was lowered: rounds ask the ledger for the open rows of their own shards only."""
    world = World(shards=4, repair=RepairRules(enabled=False))
    lost = next(key(n) for n in range(50) if shard_of(key(n), 4) == gone)
    half = world.broker.send_half(lost)
    world.commit_locally(lost, half)
    world.announce(lost)
    world.outbox.away = True
    world.rounds(world.process(), 5)
    assert world.verdict(lost) == "UNKNOWN"
    world.outbox.away = False
    world.topic = replace(world.topic, shards=2)
    world.announce(lost)
    if gate == "shut":
        world.deliver(60)
    world.rounds(world.process(), 5, consume=gate == "open")
    row = world.candidate(lost)
    assert row is not None
    assert (row.verdict, row.shard) == (Verdict.LOST_CONFIRM, shard_of(lost, 2))


def test_an_open_row_of_another_shard_that_there_is_waits_for_its_time_there() -> None:
    """unique_key_topic.queues was raised, and the key announced again: it is pending in two shards."""
    world = World(shards=2, repair=RepairRules(enabled=False))
    lost = next(key(n) for n in range(50) if shard_of(key(n), 2) == 1 and shard_of(key(n), 4) == 3)
    half = world.broker.send_half(lost)
    world.commit_locally(lost, half)
    world.announce(lost)
    world.outbox.away = True
    world.rounds(world.process(), 5)
    before = world.candidate(lost)
    world.topic = replace(world.topic, shards=4)
    world.announce(lost)
    world.rounds(world.process(), 20, every=1.0)
    after = world.candidate(lost)
    assert before is not None
    assert after is not None
    assert after.shard == 1
    assert after.attempts - before.attempts <= 3


def test_a_repair_by_hand_is_followed_where_its_key_belongs_now() -> None:
    """unique_key_topic.queues was lowered since the key was given up: no round has the shard of its row."""
    world = World(shards=4)
    lost = world.lose(next(n for n in range(50) if shard_of(key(n), 4) == 3))
    world.broker.halves.clear()
    world.rounds(world.process(), 10)
    given_up = world.repair(lost)
    assert given_up is not None
    assert given_up.state is RepairState.FAILED
    world.topic = replace(world.topic, shards=2)
    process = world.process()
    process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    world.rounds(process, 4)
    row = world.candidate(lost)
    assert row is not None
    assert (row.verdict, row.shard) == (Verdict.QUARANTINED, 1), "followed to its end, not open for ever"
