"""Step 6 with two owners: leases save work, and nothing is lost or doubled without them."""

from __future__ import annotations

import pytest

from reconciler.announcing.port import EventKind, StepKind
from reconciler.contract.subscription import Shard
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.testing.memory_shards import MemoryShards
from tests.unit.announcing.announcement_world import QUEUE, SUBSCRIPTION, World, announcement
from tests.unit.consumers.messages import new_key

pytestmark = pytest.mark.usefixtures("reads")


def test_two_consumers_share_nothing_but_redis_and_do_no_harm() -> None:
    world = World()
    one, two = world.step("one"), world.step("two")
    keys = [new_key() for _ in range(200)]
    for key in keys:
        world.topic.send(announcement(key))
        one.run_once(QUEUE)
        two.run_once(QUEUE)
        world.clock.advance(0.3)
    world.run_seconds(one, 5)
    assert world.half() == set(keys)
    assert world.memory.position(Shard(subscription=SUBSCRIPTION, number=3), QUEUE) == 200
    # The lease keeps the second one from doing the same work.
    assert two.states()[0].kind is StepKind.NOT_MINE
    assert EventKind.MEMORY_LOST not in world.kinds()


def test_two_consumers_that_both_believe_in_their_lease_do_no_harm() -> None:
    class NoLeases(MemoryShards):
        def take_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str, lease_seconds: float) -> bool:
            return True

    world = World()
    sets = NoLeases(world.clock)
    steps = [world.step("one", half_sets=sets), world.step("two", half_sets=sets)]
    keys = [new_key() for _ in range(100)]
    for number, key in enumerate(keys):
        world.topic.send(announcement(key))
        steps[number % 3 % 2].run_once(QUEUE)
    for step in steps:
        world.run(step)
    assert sets.size(Shard(subscription=SUBSCRIPTION, number=3)) == 100
    assert sets.position(Shard(subscription=SUBSCRIPTION, number=3), QUEUE) == 100


@pytest.mark.parametrize(("options", "taken_seconds"), [({}, 35), ({"lease_seconds": 4.0}, 5)])
def test_a_lease_is_kept_by_the_living_and_a_dead_holders_queue_is_taken_over_after_it(
    options: dict[str, float], taken_seconds: float
) -> None:
    world = World()
    dead, heir = world.step("dead", **options), world.step("heir", **options)
    for _ in range(20):
        world.run_seconds(dead, 1)
        assert heir.run_once(QUEUE).kind is StepKind.NOT_MINE
    key = new_key()
    world.topic.send(announcement(key))
    world.run_seconds(heir, taken_seconds)
    assert world.half() == {key}


def test_a_released_lease_is_free_at_once() -> None:
    world = World()
    one, two = world.step("one"), world.step("two")
    world.run(one)
    one.release(QUEUE)
    assert two.run_once(QUEUE).kind is not StepKind.NOT_MINE


def test_a_subscription_that_becomes_another_process_is_read_by_that_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world, owner = World(), ["one"]
    one, two = (world.step(name, concerns=lambda _, name=name: owner == [name]) for name in ("one", "two"))
    keys = [new_key(), new_key()]
    world.topic.send(announcement(keys[0]))
    world.run_seconds(one, 5)
    with monkeypatch.context() as patch:
        patch.delattr(MemoryShards, "take_lease")  # what is another's is not asked for
        assert two.run_once(QUEUE).kind is StepKind.NOT_MINE
    owner[:] = ["two"]
    world.topic.send(announcement(keys[1]))
    assert one.run_once(QUEUE).kind is StepKind.NOT_MINE
    world.run_seconds(two, 5)
    assert world.half() == set(keys)
    assert world.memory.position(Shard(subscription=SUBSCRIPTION, number=3), QUEUE) == 2


def test_a_lease_is_renewed_so_that_a_living_holder_keeps_its_queue() -> None:
    world = World()
    one, two = world.step("one"), world.step("two")
    world.run(one)
    for _ in range(60):
        world.run_seconds(one, 2)
        assert two.run_once(QUEUE).kind is StepKind.NOT_MINE
