"""What every adapter of HalfSets and CommitSets does."""

from __future__ import annotations

import itertools
import time
from itertools import pairwise

import pytest

from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.unique_key import shard_of
from reconciler.policy.ports.announcing import Admission, KnownRecords
from reconciler.shards import sets as redis_sets
from reconciler.testing import memory_shards
from tests.contract.half_sets.conftest import Backend, queue
from tests.polling import eventually
from tests.unit.contract.keys import GRPC, JAVA, RUST


def keys(count: int, first: int = 0) -> list[str]:
    """Keys of digits and keys that are text, in turn."""
    return [f"{number:032X}" if number % 2 else f"{number:031x}f" for number in range(first, first + count)]


def test_a_queue_that_nobody_consumed_has_no_position(backend: Backend) -> None:
    assert backend.half_sets.position(backend.shard(), queue()) is None
    assert backend.half_sets.size(backend.shard()) == 0


def test_keys_and_offset_move_together(backend: Backend) -> None:
    shard = backend.shard()
    first = backend.half_sets.admit(shard, queue(), expected=None, following=5, unique_keys=[])
    assert first == Admission(admitted=True, offset=5)
    assert backend.half_sets.admit(shard, queue(), expected=5, following=8, unique_keys=keys(3)).admitted
    assert backend.half_sets.position(shard, queue()) == 8
    assert backend.half_sets.size(shard) == 3
    assert backend.half() == set(keys(3))


def test_a_refused_step_writes_nothing_and_tells_the_stored_offset(backend: Backend) -> None:
    shard = backend.shard()
    backend.half_sets.admit(shard, queue(), expected=None, following=5, unique_keys=[])
    for expected in (None, 4, 6):
        answer = backend.half_sets.admit(shard, queue(), expected=expected, following=9, unique_keys=keys(2))
        assert answer == Admission(admitted=False, offset=5)
    assert backend.half_sets.size(shard) == 0
    assert backend.half_sets.position(shard, queue()) == 5


def test_after_a_loss_of_memory_nothing_is_admitted_at_the_old_offset(backend: Backend) -> None:
    shard = backend.shard()
    backend.half_sets.admit(shard, queue(), expected=None, following=5, unique_keys=keys(2))
    backend.wipe()
    answer = backend.half_sets.admit(shard, queue(), expected=5, following=6, unique_keys=keys(1))
    assert answer == Admission(admitted=False, offset=None)
    assert backend.half_sets.size(shard) == 0


def test_offset_0_is_an_offset(backend: Backend) -> None:
    shard = backend.shard()
    backend.half_sets.admit(shard, queue(), expected=None, following=0, unique_keys=[])
    assert backend.half_sets.position(shard, queue()) == 0
    assert not backend.half_sets.admit(shard, queue(), expected=None, following=1, unique_keys=[]).admitted
    assert backend.half_sets.admit(shard, queue(), expected=0, following=1, unique_keys=keys(1)).admitted


def test_a_rewind_adds_keys_twice_without_harm(backend: Backend) -> None:
    shard = backend.shard()
    backend.half_sets.admit(shard, queue(), expected=None, following=3, unique_keys=keys(3))
    assert backend.half_sets.admit(shard, queue(), expected=3, following=0, unique_keys=[]).admitted
    assert backend.half_sets.admit(shard, queue(), expected=0, following=3, unique_keys=keys(3)).admitted
    assert backend.half_sets.size(shard) == 3


def test_keys_that_are_set_apart_are_announced_like_all_others(backend: Backend) -> None:
    shard = backend.shard()
    for expected, following in pairwise((None, 5, 8)):
        backend.half_sets.admit(
            shard, queue(), expected=expected, following=following or 0, unique_keys=keys(4), apart=keys(2, 1)
        )
    assert backend.half() == set(keys(4))
    assert backend.apart() == set(keys(2, 1))
    stale = backend.half_sets.admit(shard, queue(), expected=7, following=9, unique_keys=keys(4), apart=keys(4))
    assert stale == Admission(admitted=False, offset=8)
    assert backend.apart() == set(keys(2, 1))


def test_where_no_more_can_be_set_apart_keys_are_announced_all_the_same(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (redis_sets, memory_shards):
        monkeypatch.setattr(module, "APART_KEYS_MAX", 2)
    shard = backend.shard()
    backend.half_sets.admit(shard, queue(), expected=None, following=3, unique_keys=keys(3), apart=keys(3))
    backend.half_sets.admit(shard, queue(), expected=3, following=4, unique_keys=keys(1, 9), apart=keys(1, 9))
    assert backend.half() == {*keys(3), *keys(1, 9)}
    assert backend.apart() == set(keys(3))


def test_the_largest_announcements_fit_into_one_step(backend: Backend) -> None:
    shard = backend.shard()
    many = keys(16_000)
    assert backend.half_sets.admit(shard, queue(), expected=None, following=32, unique_keys=many, apart=many).admitted
    assert backend.half_sets.size(shard) == len(many)
    assert backend.apart() == set(many)


def test_queues_of_two_brokers_and_of_two_shards_do_not_meet(backend: Backend) -> None:
    shard = backend.shard(1)
    backend.half_sets.admit(shard, queue(1, "a"), expected=None, following=10, unique_keys=keys(1))
    backend.half_sets.admit(shard, queue(1, "b"), expected=None, following=20, unique_keys=keys(1, 1))
    assert backend.half_sets.position(shard, queue(1, "a")) == 10
    assert backend.half_sets.position(shard, queue(1, "b")) == 20
    assert backend.half_sets.size(shard) == 2
    assert backend.half_sets.position(backend.shard(2), queue(2, "a")) is None


def test_long_keys_of_other_clients_are_kept_whole(backend: Backend) -> None:
    long = ["0A" * 17, "FF" * 28]
    backend.half_sets.admit(backend.shard(), queue(), expected=None, following=1, unique_keys=long)
    assert backend.half() == set(long)


def record(offset: int, minute: int = 0) -> QueueRecord:
    return QueueRecord(
        queue_offset=offset, stored_at_ms=minute * 60_000, commit_log_offset=offset * 100, unique_key=f"{offset:032X}"
    )


def test_the_last_record_that_was_seen_is_kept_with_the_offset_that_it_belongs_to(backend: Backend) -> None:
    sets, shard = backend.half_sets, backend.shard(1)
    assert sets.known_records(shard, queue(1)) == KnownRecords()
    sets.admit(shard, queue(1), expected=None, following=5, unique_keys=[], record=record(3), trail=[record(3)])
    sets.admit(shard, queue(1, "b"), expected=None, following=9, unique_keys=[], record=record(8), trail=[record(8)])
    sets.admit(shard, queue(1), expected=5, following=8, unique_keys=keys(1), record=record(7))
    kept = sets.known_records(shard, queue(1))
    assert kept.proof == QueueProof(following=8, record=record(7))
    assert kept.trail == (record(3),)
    assert sets.known_records(shard, queue(1, "b")).trail == (record(8),)
    assert not sets.admit(shard, queue(1), expected=5, following=9, unique_keys=[], record=record(8)).admitted
    assert sets.known_records(shard, queue(1)) == kept


def test_an_offset_that_moved_without_a_record_has_the_proof_of_another_one(backend: Backend) -> None:
    sets, shard = backend.half_sets, backend.shard()
    sets.admit(shard, queue(), expected=None, following=5, unique_keys=[], record=record(4), trail=[record(4)])
    sets.admit(shard, queue(), expected=5, following=7, unique_keys=[], apart=[])
    kept = sets.known_records(shard, queue()).proof
    assert kept is not None
    assert kept.following == 5


def test_what_proves_an_offset_goes_with_it_when_memory_is_lost(backend: Backend) -> None:
    sets, shard = backend.half_sets, backend.shard()
    sets.admit(shard, queue(), expected=None, following=5, unique_keys=[], record=record(4), trail=[record(4)])
    backend.wipe()
    assert sets.known_records(shard, queue()) == KnownRecords()


def test_one_holder_has_the_lease_until_it_gives_it_up(backend: Backend) -> None:
    sets, shard = backend.half_sets, backend.shard()
    assert sets.take_lease(shard, queue(), token="one", lease_seconds=30)
    assert sets.take_lease(shard, queue(), token="one", lease_seconds=30)
    assert not sets.take_lease(shard, queue(), token="two", lease_seconds=30)
    sets.release_lease(shard, queue(), token="two")
    assert not sets.take_lease(shard, queue(), token="two", lease_seconds=30)
    sets.release_lease(shard, queue(), token="one")
    assert sets.take_lease(shard, queue(), token="two", lease_seconds=30)
    assert sets.take_lease(shard, queue(0, "broker-b"), token="one", lease_seconds=30)


def test_many_offsets_and_leases_are_asked_for_at_once(backend: Backend) -> None:
    sets = backend.half_sets
    places = [(backend.shard(number), queue(number)) for number in range(1_100)]
    for number in (0, 1_099):
        sets.admit(*places[number], expected=None, following=number + 5, unique_keys=[])
    found = sets.positions(places)
    assert set(found) == set(places)
    assert {place: offset for place, offset in found.items() if offset is not None} == {places[0]: 5, places[-1]: 1_104}
    assert sets.take_lease(*places[0], token="one", lease_seconds=30)
    assert sets.take_lease(*places[1], token="two", lease_seconds=30)
    assert sets.renew_leases(places[:2], token="one", lease_seconds=30) == {places[0]}


def test_a_dead_holders_lease_ends_by_itself(backend: Backend) -> None:
    sets, shard = backend.half_sets, backend.shard()
    began = time.monotonic()
    assert sets.take_lease(shard, queue(), token="dead", lease_seconds=2.0)
    is_taken = sets.take_lease(shard, queue(), token="heir", lease_seconds=30)
    assert not is_taken or time.monotonic() - began >= 2.0, "a busy machine may come late"
    eventually(lambda: sets.take_lease(shard, queue(), token="heir", lease_seconds=30), within_seconds=60)


def test_consumed_keys_go_into_the_shard_of_their_hash(backend: Backend) -> None:
    many = keys(200)
    backend.commit_sets.record(backend.subscription, many, shards=4)
    backend.commit_sets.record(backend.subscription, many[:7], shards=4)
    backend.commit_sets.record(backend.subscription, [], shards=4)
    for number in range(4):
        assert backend.commit(number) == {key for key in many if shard_of(key, 4) == number}


def test_a_thousand_keys_of_one_shard_are_recorded(backend: Backend) -> None:
    many = keys(5_001)
    backend.commit_sets.record(backend.subscription, many, shards=1)
    assert backend.commit() == set(many)


def test_keys_of_several_clients_are_recorded_in_one_batch_whichever_comes_first(backend: Backend) -> None:
    """Their members have 16, 17 and 33 bytes or more."""
    for batch in itertools.permutations((JAVA, GRPC, RUST)):
        backend.wipe()
        backend.commit_sets.record(backend.subscription, batch, shards=1)
        assert backend.commit() == set(batch)
