"""A floor is raised only from what was read in the memory that its round ran in, however late its owner goes on."""

from __future__ import annotations

import pytest

from reconciler.contract.subscription import Shard
from tests.unit.policy.test_outages import announce_at, floor_of
from tests.unit.policy.world import World, key


def test_a_round_that_another_owner_ran_again_after_a_fall_back_is_not_taken_for_the_own_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis falls back after the round; while its owner sleeps, another one runs a round of the same generation."""
    world = World(shards=1)
    process = world.process()
    announce_at(world, 10)
    world.rounds(process, 1)
    snapshot = world.shards.snapshot()
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half)
    announce_at(world, 11, key(1))
    pending_size = world.shards.pending_size
    seen: list[tuple[int, int | None]] = []

    def after_the_pause(shard: Shard) -> tuple[int, int | None]:
        if seen:
            return pending_size(shard)
        world.shards.restore(snapshot)
        read = pending_size(shard)
        seen.append(read)
        # Asleep here: the announcement is read again, and another owner's round finds the key once more.
        announce_at(world, 11, key(1))
        world.clock.advance(60.0)  # past the lease
        world.process(owner="another").run(world.subscriptions[0])
        return read

    with monkeypatch.context() as patch:
        patch.setattr(world.shards, "pending_size", after_the_pause)
        world.rounds(process, 1)
    assert seen == [(0, None)]
    assert world.pending() == [key(1)]
    assert floor_of(world) == 10
