"""ports.RoundCapture on every backend: what a round moved is read back whole, or told as missed."""

from __future__ import annotations

from collections.abc import Iterator

import fakeredis
import pytest

from reconciler.clock import ManualClock
from reconciler.contract.keyspace import TIMES_KEPT, ShardKeys
from reconciler.contract.unique_key import member_of
from reconciler.errors import InvalidValue, InvariantViolation
from reconciler.policy.ports.history import Capture, RoundMark
from reconciler.policy.ports.rounds import RoundDone, ShardMemory
from reconciler.shards.client import RoundRedis
from reconciler.shards.memory import RedisShardMemory
from reconciler.testing.memory_shards import MemoryShards
from tests.contract.ledger.rows import key, new_environment, shard
from tests.contract.ledger.shards import BACKENDS, InMemory, InRedis, Shards, opened_shards

OF = shard(new_environment() + "-captures")


@pytest.fixture(params=BACKENDS)
def shards(request: pytest.FixtureRequest) -> Iterator[Shards]:
    """An empty memory that keeps two rounds for the history."""
    yield from opened_shards(request, history_generations=2)


def members(*numbers: int) -> tuple[bytes, ...]:
    return tuple(sorted(member_of(key(number)) for number in numbers))


def run(shards: Shards, *, announced: tuple[int, ...] = (), consumed: tuple[int, ...] = ()) -> RoundDone:
    memory = shards.memory
    epoch = memory.begin_epoch(OF)
    following = (shards.position(OF) or 0) + len(announced)
    shards.announce(OF, [key(number) for number in announced], following=following)
    shards.consume(OF, [key(number) for number in consumed])
    done = memory.take_round(OF, epoch=epoch, not_before_ms=memory.state(OF).now_ms)
    assert done is not None
    return done


def mark(done: RoundDone) -> RoundMark:
    return RoundMark(epoch=done.epoch, generation=done.generation, at_ms=done.at_ms)


def moved(capture: Capture) -> list[tuple[int, tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]]:
    return [
        (one.generation, tuple(one.announced), tuple(one.consumed), tuple(one.left_matched)) for one in capture.rounds
    ]


def test_a_new_memory_has_nothing_to_capture(shards: Shards) -> None:
    capture = shards.captures.capture(OF, after=None)
    assert (capture.epoch, capture.generation, capture.rounds, capture.missed) == (None, 0, (), None)
    assert capture.now_ms > 1_600_000_000_000
    assert not capture.new_memory
    assert not capture.fell_back


def test_a_capture_tells_what_each_round_moved(shards: Shards) -> None:
    first = run(shards, announced=(1, 2, 3), consumed=(2, 9))
    second = run(shards, announced=(4,), consumed=(3,))
    capture = shards.captures.capture(OF, after=None)
    assert moved(capture) == [
        (1, members(1, 2, 3), members(2, 9), ()),
        (2, members(4), members(3), members(3)),
    ]
    assert [(one.shard, one.mark) for one in capture.rounds] == [(OF, mark(first)), (OF, mark(second))]
    assert (capture.epoch, capture.generation, capture.missed) == (second.epoch, 2, None)


def test_a_round_that_moved_nothing_is_captured_as_such(shards: Shards) -> None:
    run(shards)
    assert moved(shards.captures.capture(OF, after=None)) == [(1, (), (), ())]


def test_two_captures_give_equal_rows(shards: Shards) -> None:
    run(shards, announced=(1, 2), consumed=(2,))
    run(shards, announced=(3,), consumed=(1,))
    first, second = (shards.captures.capture(OF, after=None) for _ in range(2))
    assert first.rounds == second.rounds
    assert len(first.rounds) == 2


def test_a_capture_begins_after_the_mark(shards: Shards) -> None:
    first = run(shards, announced=(1,))
    second = run(shards, announced=(2,))
    assert moved(shards.captures.capture(OF, after=mark(first))) == [(2, members(2), (), ())]
    nothing = shards.captures.capture(OF, after=mark(second))
    assert (nothing.rounds, nothing.missed, nothing.generation) == ((), None, 2)


def test_a_consumption_that_comes_later_belongs_to_the_next_round(shards: Shards) -> None:
    run(shards, announced=(1,))
    shards.consume(OF, [key(1)])
    assert moved(shards.captures.capture(OF, after=None)) == [(1, members(1), (), ())]


@pytest.mark.parametrize("rounds", [3, 4, 7])
def test_rounds_that_rotated_away_are_told_as_missed(shards: Shards, rounds: int) -> None:
    first = run(shards, announced=(1,))
    for number in range(2, rounds + 1):
        run(shards, announced=(number,))
    assert shards.captures.capture(OF, after=None).missed == (1, rounds - 2)
    capture = shards.captures.capture(OF, after=mark(first))
    assert capture.missed == ((2, rounds - 2) if rounds > 3 else None)
    assert [one[0] for one in moved(capture)] == [rounds - 1, rounds]


def test_a_capture_long_after_its_mark_misses_everything_in_between(shards: Shards) -> None:
    first = run(shards)
    for number in range(TIMES_KEPT + 5):
        last = run(shards, announced=(number,))
    capture = shards.captures.capture(OF, after=mark(first))
    assert capture.missed == (2, last.generation - 2)
    assert not capture.fell_back


def test_a_wiped_memory_is_told_and_its_new_rounds_are_captured(shards: Shards) -> None:
    before = run(shards, announced=(1, 2))
    shards.wipe()
    empty = shards.captures.capture(OF, after=mark(before))
    assert (empty.epoch, empty.generation, empty.rounds, empty.new_memory) == (None, 0, (), True)
    after = run(shards, announced=(2,))
    capture = shards.captures.capture(OF, after=mark(before))
    assert (capture.epoch, capture.missed, capture.new_memory) == (after.epoch, None, True)
    assert moved(capture) == [(1, members(2), (), ())]
    for number in range(3):
        run(shards, announced=(number,))
    assert shards.captures.capture(OF, after=mark(before)).missed == (1, 2)


def test_a_memory_that_fell_back_is_told_and_the_repeated_generations_are_captured(shards: Shards) -> None:
    run(shards, announced=(1,))
    saved = shards.snapshot()
    run(shards, announced=(2,))
    captured = run(shards, announced=(3,))
    shards.restore(saved)
    behind = shards.captures.capture(OF, after=mark(captured))
    assert (behind.generation, behind.rounds, behind.missed, behind.fell_back) == (1, (), None, True)

    memory = shards.memory
    for number in (12, 13):
        shards.announce(OF, [key(number)], following=number)
        done = memory.take_round(OF, epoch=captured.epoch, not_before_ms=captured.at_ms + number)
        assert done is not None
        last = mark(done)
    again = shards.captures.capture(OF, after=mark(captured))
    assert again.fell_back, "generation 3 ran a second time"
    assert (moved(again), again.missed) == ([(2, members(12), (), ()), (3, members(13), (), ())], None)
    nothing = shards.captures.capture(OF, after=last)
    assert (nothing.rounds, nothing.fell_back) == ((), False)

    later = memory.take_round(OF, epoch=captured.epoch)
    assert later is not None
    late = shards.captures.capture(OF, after=mark(captured))
    assert ([one[0] for one in moved(late)], late.missed, late.fell_back) == ([3, 4], (2, 2), True)


def test_a_round_of_an_owner_that_keeps_nothing_is_told_as_missed(shards: Shards) -> None:
    first = run(shards, announced=(1,))
    other: ShardMemory
    if isinstance(shards, InMemory):
        shards.store._history_generations = 0
        other = shards.store
    else:
        assert isinstance(shards, InRedis)
        other = RedisShardMemory(shards.rounds)
    shards.announce(OF, [key(2)], following=2)
    assert other.take_round(OF, epoch=first.epoch) is not None
    capture = shards.captures.capture(OF, after=mark(first))
    assert (capture.generation, capture.rounds, capture.missed) == (2, (), (2, 2))
    if isinstance(shards, InMemory):
        shards.store._history_generations = 2
    third = run(shards, announced=(3,))
    capture = shards.captures.capture(OF, after=mark(first))
    assert (moved(capture), capture.missed) == ([(third.generation, members(3), (), ())], (2, 2))


def test_a_big_round_is_captured_whole(shards: Shards) -> None:
    numbers = tuple(range(3_456))
    run(shards, announced=numbers, consumed=numbers[:1_500])
    run(shards, consumed=numbers[2_000:])
    first, second = shards.captures.capture(OF, after=None).rounds
    assert (tuple(first.announced), tuple(first.consumed)) == (members(*numbers), members(*numbers[:1_500]))
    assert tuple(second.left_matched) == tuple(second.consumed) == members(*numbers[2_000:])


def test_more_generations_than_consumed_keys_are_kept_for_is_refused() -> None:
    with pytest.raises(InvalidValue, match="commit_generations"):
        MemoryShards(ManualClock(), commit_generations=1, history_generations=2)
    with fakeredis.FakeRedis() as client, pytest.raises(InvalidValue, match="history_generations"):
        RedisShardMemory(RoundRedis(client=client), commit_generations=16, history_generations=5)


def test_a_foreign_epoch_stops_captures_too(shards: Shards) -> None:
    if isinstance(shards, InMemory):
        shards.store._memory(OF).epoch = "staging:1"
    else:
        assert isinstance(shards, InRedis)
        shards.client.set(ShardKeys(OF).epoch, "staging:1")
    with pytest.raises(InvariantViolation, match="staging"):
        shards.captures.capture(OF, after=None)
    with pytest.raises(InvariantViolation, match="staging"):
        shards.captures.snapshot(OF)


# ---- snapshots of pending


def test_a_snapshot_holds_every_pending_key_once_with_its_age(shards: Shards) -> None:
    first = run(shards, announced=tuple(range(2_500)))
    second = run(shards, announced=tuple(range(5_000, 6_200)), consumed=tuple(range(100)))
    snapshot = shards.captures.snapshot(OF)
    assert (snapshot.epoch, snapshot.generation) == (second.epoch, 2)
    assert abs(snapshot.at_ms - second.at_ms) < 60_000
    found = [one for page in snapshot.pages for one in page]
    expected = [(member, first.at_ms) for member in members(*range(100, 2_500))]
    expected += [(member, second.at_ms) for member in members(*range(5_000, 6_200))]
    assert found == expected


def test_a_snapshot_of_nothing_has_no_page(shards: Shards) -> None:
    snapshot = shards.captures.snapshot(OF)
    assert (snapshot.epoch, snapshot.generation, list(snapshot.pages)) == (None, 0, [])


def test_keys_that_leave_while_a_snapshot_is_read_hide_no_other(shards: Shards) -> None:
    run(shards, announced=tuple(range(3_000)))
    snapshot = shards.captures.snapshot(OF)
    first = next(snapshot.pages)
    gone = set(range(0, 3_000, 7)) | set(range(900, 1_100))
    shards.memory.forget(OF, [key(number) for number in sorted(gone)])
    found = [member for page in [first, *snapshot.pages] for member, _ in page]
    assert len(found) == len(set(found))
    assert set(members(*(set(range(3_000)) - gone))) <= set(found)


def test_keys_of_any_bytes_and_length_are_paged_in_order(shards: Shards) -> None:
    keys = [
        "00" * 16,
        "00" * 17,
        "FF" * 16,
        "FF" * 28,
        "7F80" * 8,
        "807F" * 16,
        "00FF" * 14,
        "0A" * 16,
        "0A" * 16 + "00",
    ]
    memory = shards.memory
    epoch = memory.begin_epoch(OF)
    shards.announce(OF, keys, following=1)
    assert memory.take_round(OF, epoch=epoch) is not None
    found = [member for page in shards.captures.snapshot(OF).pages for member, _ in page]
    assert found == sorted(member_of(one) for one in keys)
    (captured,) = shards.captures.capture(OF, after=None).rounds
    assert list(captured.announced) == sorted(member_of(one) for one in keys)
