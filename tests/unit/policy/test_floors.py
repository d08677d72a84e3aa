"""The floor is raised only over what is settled, and only from what was read in the memory that its round ran in."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.policy.events import ShardsAtRest
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.rounds import RoundDone
from reconciler.policy.round import ReconcileRound
from reconciler.policy.shard_rounds import ShardRounds
from tests.unit.policy.world import World, key


def floor_of(world: World) -> int | None:
    queue = AnnouncementQueue(unique_key_topic="keys", broker="broker-a", queue_id=0)
    found = world.ledger.announcements.floor(world.subscriptions[0], queue)
    return None if found is None else found.queue_offset


def announce_at(world: World, offset: int, *unique_keys: str) -> None:
    queue = AnnouncementQueue(unique_key_topic="keys", broker="broker-a", queue_id=0)
    shard = world.topic.shards_of(world.subscriptions[0])[0]
    stored = world.shards.position(shard, queue)
    world.shards.admit(shard, queue, expected=stored, following=offset, unique_keys=unique_keys)


def world_with_floor_10() -> tuple[World, ReconcileRound]:
    """One shard, whose announcements are read up to 10 and settled."""
    world = World(shards=1)
    process = world.process()
    announce_at(world, 10)
    world.rounds(process, 1)
    return world, process


def commit_and_announce(world: World) -> None:
    """A message that no group consumes, announced at 10."""
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half)
    announce_at(world, 11, key(1))


def test_floor_stays_below_a_key_that_is_not_settled() -> None:
    world, process = world_with_floor_10()
    assert floor_of(world) == 10
    commit_and_announce(world)
    world.rounds(process, 2)
    announce_at(world, 20)
    world.rounds(process, 1)
    assert floor_of(world) == 10
    world.rounds(process, 12)
    assert floor_of(world) == 20


@pytest.mark.parametrize("loss", ["wipe", "tail"])
def test_floor_is_not_raised_from_a_memory_that_was_lost_in_between(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis forgets between the round and the telling of its floor: an empty pending must not look like "settled"."""
    world, process = world_with_floor_10()
    snapshot = world.shards.save()
    commit_and_announce(world)
    store = world.ledger.rounds.store

    def before_the_loss(*done: RoundDone) -> None:
        store(*done)
        if loss == "wipe":
            world.shards.wipe()
        else:
            world.shards.restore(snapshot)

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger.rounds, "store", before_the_loss)
        world.rounds(process, 1)
    assert floor_of(world) == 10


def test_a_round_that_another_owner_ran_again_after_a_fall_back_is_not_taken_for_the_own_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis falls back after the round; while its owner sleeps, another one runs a round of the same generation."""
    world, process = world_with_floor_10()
    snapshot = world.shards.save()
    commit_and_announce(world)
    store = world.ledger.rounds.store
    slept: list[RoundDone] = []

    def before_the_pause(*done: RoundDone) -> None:
        store(*done)
        if slept:
            return
        slept.extend(done)
        world.shards.restore(snapshot)
        # Asleep here: the announcement is read again, and another owner's round finds the key once more.
        announce_at(world, 11, key(1))
        world.clock.advance(60.0)  # past the lease
        world.process(owner="another").run(world.subscriptions[0])

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger.rounds, "store", before_the_pause)
        world.rounds(process, 1)
    assert [done.counts.pending_added for done in slept] == [1]
    assert world.pending() == [key(1)]
    assert floor_of(world) == 10


@pytest.mark.parametrize("dies_before_storing", [False, True])
def test_a_redis_that_comes_back_with_what_it_had_undone_tells_no_floor_of_the_rounds_between(
    dies_before_storing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed over to a stale replica, a round there, failed back to the old disk: equal generations, other keys."""
    world, process = world_with_floor_10()
    replica = world.shards.save()
    world.rounds(process, 2)
    old_disk = world.shards.save()
    world.shards.restore(replica)
    announce_at(world, 20)  # on the replica only: all of them are consumed there
    with monkeypatch.context() as patch:
        if dies_before_storing:
            patch.setattr(world.ledger.rounds, "raise_floor", lambda *_: None)
            patch.setattr(world.ledger.rounds, "store", lambda _: None)
        world.rounds(process, 1)
    assert floor_of(world) == (10 if dies_before_storing else 20)
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half)
    announce_at(world, 31, key(1))
    world.rounds(process, 1)  # the round of the replica that knows of the key
    world.shards.restore(old_disk)
    announce_at(world, 31, key(1))
    world.rounds(process, 2)
    assert world.pending() == [key(1)]
    assert floor_of(world) == 20


def rounds_told_late(world: World) -> ShardRounds:
    """Rounds of a process whose history can read two of them back."""
    return ShardRounds(
        memory=world.shards,
        leases=world.shards,
        rounds=world.ledger.rounds,
        owner="one",
        lease_seconds=12.0,
        clock=world.clock,
        events=world.events,
        floors_behind=2,
    )


def test_a_floor_is_told_as_many_rounds_later_as_the_history_can_read_back() -> None:
    """Should these rounds go with Redis before they were read, their announcements are read again."""
    world = World(shards=1)
    shard, rounds = world.topic.shards_of(world.subscriptions[0])[0], rounds_told_late(world)
    told = []
    for offset in (10, 20, 30, 40):
        announce_at(world, offset)
        rounds.run(shard)
        told.append(floor_of(world))
    assert told == [None, None, 10, 20]
    rounds.release(shard)
    assert floor_of(world) == 40, "a process that ends has nothing more to wait for"


def test_floors_that_wait_are_not_told_once_redis_has_lost_what_they_stand_for() -> None:
    world = World(shards=1)
    shard, rounds = world.topic.shards_of(world.subscriptions[0])[0], rounds_told_late(world)
    for offset in (10, 20, 30):
        announce_at(world, offset)
        rounds.run(shard)
    world.shards.wipe()
    assert rounds.run(shard).lost_memory
    world.shards.begin_epoch(shard)
    for offset in (11, 12):
        announce_at(world, offset)
        rounds.run(shard)
    assert floor_of(world) == 10


@pytest.mark.parametrize(
    ("taken", "is_consumed", "quiet_rounds", "rests"),
    [
        pytest.param((), True, 3, True, id="nothing ever came"),
        pytest.param((), True, 2, False, id="no floor is told yet"),
        pytest.param((key(1),), True, 2, True, id="a key came and was consumed before the floors that wait"),
        pytest.param((key(1),), True, 1, False, id="a floor that waits has a key"),
        pytest.param((key(1),), False, 3, False, id="a key is pending"),
    ],
)
def test_with_a_history_shards_rest_for_long_once_floors_are_told_and_nothing_is_pending(
    taken: tuple[str, ...], is_consumed: bool, quiet_rounds: int, rests: bool
) -> None:
    """Its row of a shard at rest says that nothing is pending; floors that wait are told hours later then."""
    world = World(shards=2)
    subscription, rounds = world.subscriptions[0], rounds_told_late(world)
    shards = world.topic.shards_of(subscription)
    if taken:
        world.announce(*taken)
        if is_consumed:
            world.shards.record(subscription, taken, shards=2)
        for shard in shards:
            rounds.run(shard)
    for _ in range(quiet_rounds):
        last = [rounds.run(shard).done for shard in shards]
    world.clock.advance(5)
    rounds.look(shards)
    rounds.keep_rests({subscription: shards})
    told = [look for event in world.events.of(ShardsAtRest) for look in event.looks]
    assert told == ([(done, world.redis_clock.now_ms()) for done in last] if rests else [])
    assert bool(world.ledger.rows.rests) is rests


def test_rounds_that_an_earlier_turn_still_runs_while_the_row_of_rest_is_written_change_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(shards=2)
    subscription, rounds = world.subscriptions[0], rounds_told_late(world)
    shards = world.topic.shards_of(subscription)
    for _ in range(3):
        last = [rounds.run(shard).done for shard in shards]
    world.clock.advance(5)
    rounds.look(shards)
    keep = world.ledger.rounds.keep_rest

    def keep_slowly(*arguments: Any, **options: Any) -> bool:
        rounds.run(shards[0])
        return keep(*arguments, **options)

    monkeypatch.setattr(world.ledger.rounds, "keep_rest", keep_slowly)
    rounds.keep_rests({subscription: shards})
    [told] = world.events.of(ShardsAtRest)
    assert [done for done, _ in told.looks] == last
