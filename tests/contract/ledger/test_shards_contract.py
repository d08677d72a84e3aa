"""ports.ShardMemory and ports.RoundLeases on every backend: one round moves exactly what it should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from reconciler.contract.keyspace import AHEAD_MS_MAX, COVERED_ROUNDS_MAX, ShardKeys
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import member_of
from reconciler.errors import InvariantViolation
from reconciler.policy.ports.announcing import HalfSets
from reconciler.policy.ports.rounds import NextRound, PendingKey, RoundCounts, RoundDone, ShardLook
from reconciler.shards.sets import RedisHalfSets
from reconciler.testing.memory_shards import with_round
from tests.contract.ledger.rows import key, new_environment, shard
from tests.contract.ledger.shards import BACKENDS, QUEUE, InMemory, InRedis, Shards, opened_shards
from tests.unit.contract.keys import GO, OF_CLIENTS, RUST


@pytest.fixture(params=BACKENDS)
def shards(request: pytest.FixtureRequest) -> Iterator[Shards]:
    """An empty memory."""
    yield from opened_shards(request)


OF = shard(new_environment())


def keys(*numbers: int) -> list[str]:
    return [key(number) for number in numbers]


def run(shards: Shards) -> RoundDone:
    memory = shards.memory
    done = memory.take_round(OF, epoch=memory.begin_epoch(OF))
    assert done is not None
    return done


def test_a_new_memory_has_no_epoch_and_generation_zero(shards: Shards) -> None:
    state = shards.memory.state(OF)
    assert (state.epoch, state.generation) == (None, 0)
    assert state.now_ms > 1_600_000_000_000
    assert shards.memory.pending_size(OF) == (0, None)
    assert shards.memory.due(OF, first_seen_until_ms=state.now_ms, limit=10) == []


def test_the_epoch_is_written_once_and_names_the_environment(shards: Shards) -> None:
    first = shards.memory.begin_epoch(OF)
    assert first.startswith(f"{OF.subscription.environment}:")
    assert len(first) > len(OF.subscription.environment) + 8
    assert shards.memory.begin_epoch(OF) == first
    assert shards.memory.state(OF).epoch == first


def test_a_round_counts_what_it_moved(shards: Shards) -> None:
    shards.announce(OF, keys(1, 2, 3), following=5)
    shards.consume(OF, keys(2))
    first = run(shards)
    assert (first.generation, first.offsets) == (1, {"broker-a/3": 5})
    assert first.counts == RoundCounts(
        announced=3, matched=1, pending_before=0, pending_added=2, pending_matched=0, pending_after=2
    )
    assert shards.pending(OF) == {key(1): first.at_ms, key(3): first.at_ms}
    assert shards.half(OF) == set()

    shards.announce(OF, keys(3, 4, 5), following=9)
    shards.consume(OF, keys(1, 5))
    second = run(shards)
    assert (second.generation, second.offsets) == (2, {"broker-a/3": 9})
    assert second.counts == RoundCounts(
        announced=3, matched=1, pending_before=2, pending_added=1, pending_matched=1, pending_after=2
    )
    assert shards.pending(OF) == {key(3): first.at_ms, key(4): second.at_ms}, "an age never starts again"
    assert shards.memory.state(OF).generation == 2
    assert shards.memory.pending_size(OF) == (2, first.at_ms)


def test_small_rounds_run_together_each_behind_its_own_fence(shards: Shards) -> None:
    """Of one that did not run there is no answer; another round moved the fence."""
    of = [Shard(subscription=OF.subscription, number=number) for number in range(3)]
    first = {one: shards.memory.take_round(one, epoch=shards.memory.begin_epoch(one)) for one in of}
    for one, old in first.items():
        assert old is not None
        shards.announce(one, keys(1, 2), following=7)
    shards.consume(of[0], keys(2))
    assert shards.memory.take_round(of[1], epoch=shards.memory.begin_epoch(of[1])) is not None
    rounds = [
        NextRound(shard=one, epoch=old.epoch, generation=old.generation, not_before_ms=old.at_ms + 1)
        for one, old in first.items()
        if old is not None
    ]
    found = shards.memory.take_small_rounds(rounds)
    assert set(found) == {of[0], of[2]}
    done = found[of[0]]
    assert (done.generation, done.offsets, done.oldest_pending_ms) == (2, {"broker-a/3": 7}, done.at_ms)
    assert (done.counts.announced, done.counts.matched, done.counts.pending_after) == (2, 1, 1)
    assert shards.memory.state(of[1]).generation == 2, "no round of it ran"
    assert shards.memory.take_small_rounds(rounds) == {}, "nothing is moved twice"


def test_an_empty_round_moves_the_fence_only(shards: Shards) -> None:
    assert run(shards).counts == RoundCounts(
        announced=0, matched=0, pending_before=0, pending_added=0, pending_matched=0, pending_after=0
    )
    assert run(shards).generation == 2


def test_a_consumption_matches_announcements_of_two_more_rounds_and_then_is_forgotten(shards: Shards) -> None:
    shards.consume(OF, keys(1, 2, 3))
    run(shards)
    shards.announce(OF, keys(1), following=1)
    assert run(shards).counts.matched == 1
    shards.announce(OF, keys(2), following=2)
    assert run(shards).counts.matched == 1
    shards.announce(OF, keys(3), following=3)
    assert run(shards).counts.pending_added == 1, "costs an inbox look-up only"


def test_a_late_consumption_takes_its_key_out_of_pending(shards: Shards) -> None:
    shards.announce(OF, keys(1), following=1)
    run(shards)
    run(shards)
    shards.consume(OF, keys(1))
    assert run(shards).counts.pending_matched == 1
    assert shards.pending(OF) == {}


def test_a_round_of_another_epoch_does_not_run(shards: Shards) -> None:
    shards.announce(OF, keys(1), following=1)
    shards.memory.begin_epoch(OF)
    assert shards.memory.take_round(OF, epoch=f"{OF.subscription.environment}:other") is None
    assert shards.half(OF) == set(keys(1))
    assert shards.memory.state(OF).generation == 0


def test_a_round_without_an_epoch_does_not_run(shards: Shards) -> None:
    shards.announce(OF, keys(1), following=1)
    assert shards.memory.take_round(OF, epoch=f"{OF.subscription.environment}:gone") is None
    assert shards.half(OF) == set(keys(1))


def test_a_wiped_memory_shows_in_epoch_and_generation(shards: Shards) -> None:
    shards.announce(OF, keys(1), following=1)
    before = run(shards)
    shards.wipe()
    state = shards.memory.state(OF)
    assert (state.epoch, state.generation) == (None, 0)
    assert shards.memory.take_round(OF, epoch=before.epoch) is None
    assert shards.memory.begin_epoch(OF) != before.epoch


def test_times_of_rounds_never_run_backwards(shards: Shards) -> None:
    memory = shards.memory
    epoch = memory.begin_epoch(OF)
    ahead = memory.state(OF).now_ms + 3_600_000
    first = memory.take_round(OF, epoch=epoch, not_before_ms=ahead)
    second = memory.take_round(OF, epoch=epoch)
    assert first is not None
    assert second is not None
    assert (first.at_ms, second.at_ms) == (ahead, ahead + 1)


def test_new_keys_age_by_the_clock_of_now_while_it_is_behind_the_last_round(shards: Shards) -> None:
    """Redis' clock was set back by an hour: a loss of the next minutes must not wait for that hour."""
    memory = shards.memory
    epoch = memory.begin_epoch(OF)
    before_ms = memory.state(OF).now_ms
    ahead = before_ms + 3_600_000
    assert memory.take_round(OF, epoch=epoch, not_before_ms=ahead) is not None
    shards.announce(OF, keys(1), following=1)
    done = memory.take_round(OF, epoch=epoch)
    after_ms = memory.state(OF).now_ms
    assert done is not None
    assert done.clock_ms is not None
    assert done.at_ms == ahead + 1
    assert before_ms <= done.clock_ms <= after_ms
    assert shards.pending(OF) == dict.fromkeys(keys(1), done.clock_ms)


def test_keys_that_were_dated_by_a_clock_that_was_ahead_are_dated_again(shards: Shards) -> None:
    memory = shards.memory
    epoch = memory.begin_epoch(OF)
    shards.announce(OF, keys(*range(1_500)), following=1)
    first = memory.take_round(OF, epoch=epoch)
    assert first is not None
    shards.date(OF, keys(*range(1_200)), first_seen_ms=first.at_ms + 3_600_000)
    done = memory.take_round(OF, epoch=epoch)
    assert done is not None
    assert done.clock_ms is not None
    assert set(shards.pending(OF).values()) == {first.at_ms, done.clock_ms}
    assert done.clock_ms < first.at_ms + 3_600_000
    assert done.counts.pending_after == 1_500


def test_rounds_within_a_millisecond_are_no_clock_that_is_behind(shards: Shards) -> None:
    memory = shards.memory
    epoch = memory.begin_epoch(OF)
    ahead = memory.state(OF).now_ms + AHEAD_MS_MAX - 500
    shards.announce(OF, keys(1), following=1)
    done = memory.take_round(OF, epoch=epoch, not_before_ms=ahead)
    assert done is not None
    assert done.clock_ms == done.at_ms == ahead
    assert shards.pending(OF) == dict.fromkeys(keys(1), ahead)


def test_a_round_is_no_older_than_a_pending_key_whatever_the_clock_says(shards: Shards) -> None:
    """The round that found the key was not stored, its process is gone, and Redis' clock went back."""
    memory = shards.memory
    epoch = memory.begin_epoch(OF)
    ahead = memory.state(OF).now_ms + 3_600_000
    shards.announce(OF, keys(1), following=1)
    assert memory.take_round(OF, epoch=epoch, not_before_ms=ahead) is not None
    shards.date(OF, keys(1), first_seen_ms=ahead)
    if isinstance(shards, InRedis):
        shards.client.delete(ShardKeys(OF).covered)  # Redis lost it
    shards.announce(OF, keys(2), following=2)
    done = shards.memory.take_round(OF, epoch=epoch)
    assert done is not None
    assert done.at_ms >= ahead
    assert done.floor == {}


def test_the_floor_is_what_the_newest_round_before_the_oldest_pending_key_covered(shards: Shards) -> None:
    assert run(shards).floor == {}
    shards.announce(OF, keys(1, 2), following=2)
    shards.consume(OF, keys(1, 2))
    assert run(shards).floor == {"broker-a/3": 2}
    shards.announce(OF, keys(3), following=3)
    assert run(shards).floor == {"broker-a/3": 2}
    shards.announce(OF, keys(4), following=4)
    assert run(shards).floor == {"broker-a/3": 2}
    shards.announce(OF, [], following=5)
    shards.memory.forget(OF, keys(3))
    assert run(shards).floor == {"broker-a/3": 3}
    shards.consume(OF, keys(4))
    assert run(shards).floor == {"broker-a/3": 5}


def admit(shards: Shards, *found: int, following: int, record: int | None) -> None:
    """As the announcement consumer does it, with what it saw last."""
    assert isinstance(shards, (InMemory, InRedis))
    sets: HalfSets = shards.store if isinstance(shards, InMemory) else RedisHalfSets(shards.client)
    seen = None if record is None else proof(following, record).record
    moved = sets.admit(
        OF, QUEUE, expected=shards.position(OF), following=following, unique_keys=keys(*found), record=seen
    )
    assert moved.admitted


def proof(following: int, record: int) -> QueueProof:
    seen = QueueRecord(queue_offset=record, stored_at_ms=record, commit_log_offset=record, unique_key="A" * 32)
    return QueueProof(following=following, record=seen)


def test_a_floor_is_told_with_what_proves_it(shards: Shards) -> None:
    admit(shards, 1, following=5, record=3)
    shards.consume(OF, keys(1))
    first = run(shards)
    assert (first.floor, first.floor_proofs) == ({"broker-a/3": 5}, {"broker-a/3": proof(5, 3)})
    admit(shards, 2, following=8, record=7)
    waiting = run(shards)
    assert (waiting.floor, waiting.floor_proofs) == ({"broker-a/3": 5}, {"broker-a/3": proof(5, 3)})
    admit(shards, 3, following=9, record=8)
    shards.consume(OF, keys(2, 3))
    last = run(shards)
    assert (last.floor, last.floor_proofs) == ({"broker-a/3": 9}, {"broker-a/3": proof(9, 8)})


def test_a_floor_whose_offset_another_release_moved_is_told_without_a_proof(shards: Shards) -> None:
    admit(shards, following=5, record=3)
    admit(shards, following=7, record=None)
    done = run(shards)
    assert (done.floor, done.floor_proofs) == ({"broker-a/3": 7}, {})


def test_what_proved_the_offsets_of_rounds_goes_with_them(shards: Shards) -> None:
    for number in range(3 * COVERED_ROUNDS_MAX):
        admit(shards, number, following=number + 2, record=number)
        if number % 7 == 6 and isinstance(shards, InRedis):
            # An older release runs a round: it forgets rounds, and leaves their proofs.
            shards.client.hdel(ShardKeys(OF).covered, next(name for name in covered(shards) if name.isdigit()))
        run(shards)
    if isinstance(shards, InRedis):
        assert len(covered(shards)) <= 2 * COVERED_ROUNDS_MAX + 1


def covered(shards: InRedis) -> list[bytes]:
    """Fields of K:covered."""
    names: Any = shards.client.hkeys(ShardKeys(OF).covered)
    return list(names)


def test_a_memory_that_comes_back_brings_its_own_floor(shards: Shards) -> None:
    """Failed over, a round, failed back: what the replica's rounds covered is none of the old disk's business."""
    run(shards)
    replica = shards.snapshot()
    shards.announce(OF, keys(1), following=1)
    first = run(shards)
    old_disk = shards.snapshot()
    shards.restore(replica)
    shards.announce(OF, keys(1, 2), following=2)
    shards.consume(OF, keys(1, 2))
    assert run(shards).floor == {"broker-a/3": 2}
    shards.restore(old_disk)
    state = shards.memory.state(OF)
    assert (state.generation, state.round_at_ms) == (first.generation, first.at_ms)
    shards.announce(OF, keys(2), following=2)
    assert run(shards).floor == {}
    shards.consume(OF, keys(1))
    assert run(shards).floor == {"broker-a/3": 1}


def test_of_many_rounds_since_the_oldest_pending_key_enough_are_kept_for_the_floor(shards: Shards) -> None:
    """The script and its rule in Python agree, round for round; what is kept stays bounded."""
    covered: dict[int, Mapping[str, int]] = {}
    floor: Mapping[str, int] = {}
    for number in range(3 * COVERED_ROUNDS_MAX):
        shards.announce(OF, keys(number), following=number + 1)
        if number == 2 * COVERED_ROUNDS_MAX:
            shards.memory.forget(OF, keys(*range(COVERED_ROUNDS_MAX)))
        done = run(shards)
        oldest = shards.memory.pending_size(OF)[1]
        covered, floor = with_round(covered, at_ms=done.at_ms, offsets=done.offsets, oldest_pending_ms=oldest)
        assert done.floor == floor
        assert len(covered) <= COVERED_ROUNDS_MAX
    assert COVERED_ROUNDS_MAX / 2 < floor["broker-a/3"] <= COVERED_ROUNDS_MAX


def test_due_keys_come_oldest_first_with_ties_by_key_and_page_without_gaps(shards: Shards) -> None:
    memory = shards.memory
    epoch = memory.begin_epoch(OF)
    first_batch, second_batch = keys(*range(50, 150)), keys(*range(0, 50))
    shards.announce(OF, first_batch, following=1)
    first = memory.take_round(OF, epoch=epoch)
    shards.announce(OF, second_batch, following=2)
    second = memory.take_round(OF, epoch=epoch)
    assert first is not None
    assert second is not None
    expected = [(first.at_ms, k) for k in first_batch] + [(second.at_ms, k) for k in second_batch]

    for page_size in (1, 7, 50, 150, 1_000):
        found: list[PendingKey] = []
        while page := memory.due(
            OF, first_seen_until_ms=second.at_ms, limit=page_size, after=found[-1] if found else None
        ):
            assert len(page) <= page_size
            found += page
        assert [(one.first_seen_ms, one.unique_key) for one in found] == expected

    assert len(memory.due(OF, first_seen_until_ms=second.at_ms - 1, limit=1_000)) == 100
    assert len(memory.due(OF, first_seen_until_ms=first.at_ms, limit=1_000)) == 100
    assert memory.due(OF, first_seen_until_ms=first.at_ms - 1, limit=1_000) == []
    assert memory.due(OF, first_seen_until_ms=second.at_ms, limit=0) == []


@pytest.mark.parametrize("gone", [[3], [0, 1, 2, 3], [4], list(range(10))])
def test_paging_goes_on_after_a_key_that_is_gone(shards: Shards, gone: list[int]) -> None:
    shards.announce(OF, keys(*range(10)), following=1)
    done = run(shards)
    shards.memory.forget(OF, keys(*gone))
    after = PendingKey(unique_key=key(3), first_seen_ms=done.at_ms)
    page = shards.memory.due(OF, first_seen_until_ms=done.at_ms, limit=100, after=after)
    assert [one.unique_key for one in page] == [key(n) for n in range(4, 10) if n not in gone]
    late = PendingKey(unique_key=key(3), first_seen_ms=done.at_ms + 1)
    assert shards.memory.due(OF, first_seen_until_ms=done.at_ms, limit=100, after=late) == []


def test_forgetting_counts_what_was_there(shards: Shards) -> None:
    shards.announce(OF, keys(*range(2_500)), following=1)
    run(shards)
    assert shards.memory.forget(OF, keys(*range(1, 2_400), 9_999)) == 2_399
    assert shards.memory.forget(OF, keys(1)) == 0
    assert shards.memory.forget(OF, []) == 0
    assert shards.memory.pending_size(OF)[0] == 101


def all_apart(shards: Shards) -> list[str]:
    found: list[str] = []
    cursor = 0
    while True:
        cursor, page = shards.memory.apart(OF, cursor=cursor)
        found += page
        if cursor == 0:
            return found


def test_pending_keys_tell_whether_they_are_set_apart(shards: Shards) -> None:
    assert shards.memory.apart(OF) == (0, [])
    shards.announce(OF, keys(1, 2, 3), following=3)
    shards.set_apart(OF, keys(2, 9))
    done = run(shards)
    due = shards.memory.due(OF, first_seen_until_ms=done.at_ms, limit=9)
    assert {pending.unique_key: pending.is_apart for pending in due} == {key(1): False, key(2): True, key(3): False}
    assert set(all_apart(shards)) == set(keys(2, 9))


def test_what_was_compared_leaves_pending_or_goes_on(shards: Shards) -> None:
    shards.announce(OF, keys(1, 2, 3, 4), following=4)
    shards.set_apart(OF, keys(1, 2, 3))
    run(shards)
    assert shards.memory.compared(OF, not_taken=keys(1, 8), going_on=keys(2)) == 1
    assert set(shards.pending(OF)) == set(keys(2, 3, 4))
    assert all_apart(shards) == keys(3)
    assert shards.memory.compared(OF, not_taken=[], going_on=[]) == 0


def test_what_no_round_has_seen_yet_stays_set_apart_for_the_next_one(shards: Shards) -> None:
    shards.announce(OF, keys(1), following=1)
    shards.set_apart(OF, keys(1))
    run(shards)
    shards.announce(OF, keys(1, 2, 3), following=2)
    shards.set_apart(OF, keys(2, 3))
    assert shards.memory.compared(OF, not_taken=keys(1, 2), going_on=keys(3)) == 1
    assert shards.pending(OF) == {}
    assert set(all_apart(shards)) == set(keys(1, 2))
    run(shards)
    assert shards.memory.compared(OF, not_taken=keys(1, 2), going_on=[]) == 2
    assert all_apart(shards) == []
    assert set(shards.pending(OF)) == set(keys(3))


def test_thousands_of_keys_are_set_apart_and_compared(shards: Shards) -> None:
    many = keys(*range(2_500))
    shards.announce(OF, many, following=2_500)
    shards.set_apart(OF, many)
    run(shards)
    assert set(all_apart(shards)) == set(many)
    assert shards.memory.compared(OF, not_taken=many[:1_500], going_on=many[1_500:]) == 1_500
    assert all_apart(shards) == []
    assert shards.memory.pending_size(OF)[0] == 1_000


def test_shards_and_environments_do_not_mix(shards: Shards) -> None:
    shards.announce(OF, keys(1), following=1)
    run(shards)
    for other in (shard(OF.subscription.environment, 4), shard("elsewhere", 3)):
        assert shards.memory.pending_size(other) == (0, None)
        assert shards.memory.state(other).epoch is None


def test_a_foreign_epoch_stops_the_shard(shards: Shards) -> None:
    if isinstance(shards, InMemory):
        shards.store._memory(OF).epoch = "staging:1"
    else:
        assert isinstance(shards, InRedis)
        shards.client.set(ShardKeys(OF).epoch, "staging:1")
    shards.announce(OF, keys(1), following=1)
    with pytest.raises(InvariantViolation, match="staging") as stopped:
        shards.memory.state(OF)
    assert stopped.value.cause == "other-environment"
    with pytest.raises(InvariantViolation, match="staging"):
        shards.memory.begin_epoch(OF)
    with pytest.raises(InvariantViolation, match="staging"):
        shards.memory.take_round(OF, epoch="staging:1")
    assert shards.half(OF) == set(keys(1))


# ---- leases


def test_one_token_holds_a_lease_and_only_it_renews_and_releases(shards: Shards) -> None:
    leases = shards.leases
    assert leases.take(OF, token="a", lease_seconds=60)
    assert not leases.take(OF, token="b", lease_seconds=60)
    assert leases.take(OF, token="a", lease_seconds=60), "renewing"
    leases.release(OF, token="b")
    assert not leases.take(OF, token="b", lease_seconds=60)
    leases.release(OF, token="a")
    assert leases.take(OF, token="b", lease_seconds=60)
    assert leases.take(shard(OF.subscription.environment, 4), token="a", lease_seconds=60)


# ---- looks


def look(shards: Shards, *, renews: bool = False, lease_seconds: float = 60) -> ShardLook:
    return shards.leases.look({OF: renews}, token="a", lease_seconds=lease_seconds)[OF]


def test_a_look_sees_what_a_round_would_move_and_what_it_left(shards: Shards) -> None:
    nothing = look(shards)
    assert (nothing.state.epoch, nothing.state.generation, nothing.state.round_at_ms) == (None, 0, None)
    assert (nothing.members, nothing.pending, nothing.oldest_pending_ms, nothing.has_apart) == (0, 0, None, False)
    shards.announce(OF, keys(1), following=1)
    assert look(shards).members == 1
    done = run(shards)
    shards.set_apart(OF, keys(1))
    seen = look(shards)
    assert (seen.state.epoch, seen.state.generation) == (done.epoch, done.generation)
    assert seen.state.round_at_ms == done.at_ms <= seen.state.now_ms
    assert (seen.members, seen.pending, seen.oldest_pending_ms, seen.has_apart) == (0, 1, done.at_ms, True)
    assert seen.offsets == done.offsets != {}
    shards.consume(OF, keys(2))
    assert look(shards).members == 1


def test_a_reading_is_what_state_and_pending_say(shards: Shards) -> None:
    memory, other = shards.memory, shard(OF.subscription.environment, 6)
    nothing = memory.readings([OF])[OF]
    assert (nothing.state.epoch, nothing.state.generation, nothing.state.round_at_ms) == (None, 0, None)
    assert (nothing.pending, nothing.oldest_pending_ms, nothing.consumed) == (0, None, 0)
    shards.announce(OF, keys(1, 2), following=1)
    done = run(shards)
    found = memory.readings([OF, other])
    assert found.keys() == {OF, other}
    seen, state = found[OF], memory.state(OF)
    assert seen.state.epoch == state.epoch == done.epoch
    assert seen.state.generation == state.generation == 1
    assert seen.state.round_at_ms == state.round_at_ms == done.at_ms <= seen.state.now_ms <= state.now_ms
    assert (seen.pending, seen.oldest_pending_ms) == memory.pending_size(OF) == (2, done.at_ms)
    assert memory.readings([]) == {}
    assert seen.consumed == 0
    shards.consume(OF, keys(3))
    assert memory.readings([OF])[OF].consumed == 1
    run(shards)
    assert memory.readings([OF])[OF].consumed == 1, "an older commit set has it"


def test_a_look_tells_who_holds_the_lease_and_renews_only_its_own(shards: Shards) -> None:
    assert look(shards, renews=True).is_ours is None, "a look takes none"
    assert shards.leases.take(OF, token="a", lease_seconds=30)
    assert look(shards).is_ours
    assert look(shards, renews=True).is_ours
    if isinstance(shards, InMemory):
        shards.clock.advance(45)
    if isinstance(shards, InRedis):
        assert shards.client.pttl(ShardKeys(OF).round_lease) > 30_000
    assert look(shards).is_ours, "renewed by the second look"
    assert not shards.leases.take(OF, token="b", lease_seconds=60)
    shards.leases.release(OF, token="a")
    assert shards.leases.take(OF, token="b", lease_seconds=60)
    assert look(shards, renews=True).is_ours is False
    assert shards.leases.take(OF, token="b", lease_seconds=60)


def test_a_shard_that_cannot_be_looked_at_leaves_the_others_seen(shards: Shards) -> None:
    environment = OF.subscription.environment
    damaged, sound = shard(environment, 5), shard(environment, 6)
    if isinstance(shards, InRedis):
        shards.client.set(ShardKeys(damaged).half, "a text")
        shards.client.set(ShardKeys(OF).epoch, "another:environment")
    else:
        shards.memory.begin_epoch(damaged)
        shards.memory.begin_epoch(OF)
        assert isinstance(shards, InMemory)
        for one in (damaged, OF):
            shards.store._memory(one).epoch = "another:environment"
    found = shards.leases.look(dict.fromkeys([damaged, OF, sound], True), token="a", lease_seconds=60)
    assert found.keys() == {sound}


def test_a_look_at_a_server_that_forgot_the_script_sees_again_at_the_next_one(shards: Shards) -> None:
    leases = shards.leases
    assert leases.look({OF: False}, token="a", lease_seconds=60)
    if isinstance(shards, InRedis):
        shards.client.script_flush()
    leases.look({OF: False}, token="a", lease_seconds=60)
    assert leases.look({OF: False}, token="a", lease_seconds=60)


def test_keys_of_both_shapes_are_matched_as_they_are_and_page_without_gaps(shards: Shards) -> None:
    lower = key(0xABC).lower()
    announced = [*OF_CLIENTS, key(0xABC), lower, "a" * 16, "Z" * 64, key(1), key(2)]
    shards.announce(OF, announced, following=1)
    shards.consume(OF, [GO, lower.upper(), "A" * 16])
    pending = set(announced) - {GO, key(0xABC)}
    done = run(shards)
    assert shards.pending(OF).keys() == pending
    assert shards.memory.due(OF, first_seen_until_ms=done.at_ms - 1, limit=1, after=None) == []
    found: list[PendingKey] = []
    while page := shards.memory.due(
        OF, first_seen_until_ms=done.at_ms, limit=2, after=found[-1] if found else None
    ):  # fmt: skip
        found += page
    assert [one.unique_key for one in found] == sorted(pending, key=member_of)
    assert shards.memory.forget(OF, [lower, RUST, lower.upper()]) == 2
