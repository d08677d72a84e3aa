"""The judge of keys that leave pending: whose setting took them away, whatever has become of the process since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import member_of
from tests.simulation.kernel import Process
from tests.simulation.swarm import draw
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Left:
    """A world whose setting was corrected, and a key that its group takes and its ledger does not know."""

    world: World
    key: str

    def told_of(self, sender: Process) -> list[str]:
        """What the judge says when a ZREM of the sender is executed."""
        checkers = self.world.checkers
        shard = Shard(subscription=self.world.right_plan.subscriptions[0].subscription, number=0)
        checkers.judgement.unaccounted.clear()
        checkers.forgotten(sender, ShardKeys(shard).pending.removesuffix(":pending"), (member_of(self.key),))
        return list(checkers.judgement.unaccounted)

    def process(self) -> Process:
        """One more that rounds run in."""
        return Process(self.world.kernel, "reconciler", "reconciler-9")


@pytest.fixture(scope="module")
def left() -> Iterator[Left]:
    world = World(draw(1, only=frozenset({"tags corrected"}), always=frozenset({"tags corrected"})))
    try:
        assert not world.run().accidents
        group = world.right_plan.subscriptions[0].group
        yield Left(world, next(
            key for key, order in world.orders.items()
            if world.is_committed(key) and world.takes(group, order.tag) and world.candidate(group, key) is None
        ))  # fmt: skip
    finally:
        world.close()


def test_what_a_process_with_wrong_tags_sent_is_excused_when_redis_executes_it_after_its_death(left: Left) -> None:
    sender = left.process()
    sender.is_dead = True
    left.world.wrongly_set[:] = [sender]
    assert left.told_of(sender) == []


def test_a_process_with_the_right_tags_is_not_excused_by_another_one_that_has_wrong_tags(left: Left) -> None:
    left.world.wrongly_set[:] = [left.process()]
    assert left.told_of(left.process()) == [
        f"{left.key} left pending of {left.world.right_plan.subscriptions[0].group} before its ledger row said why"
    ]
