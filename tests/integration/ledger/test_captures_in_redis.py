"""Captures while Redis, other owners and the network do what they like: a round is read whole or told as missed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import member_of
from reconciler.errors import InvariantViolation, RedisAway
from reconciler.policy.ports.history import RoundMark
from reconciler.policy.ports.rounds import RoundDone
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_capture import VIEWS_MAX, RedisRoundCapture
from tests.contract.ledger.rows import key
from tests.contract.ledger.shards import InRedis
from tests.integration.ledger.reply_swallower import ReplySwallower
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis

KEYS = [key(number) for number in range(4_000)]


@pytest.fixture
def direct(direct: InRedis) -> InRedis:
    return replace(direct, history_generations=2)


def members(keys: list[str]) -> list[bytes]:
    return sorted(member_of(one) for one in keys)


def run(direct: InRedis, of: Shard) -> RoundDone:
    memory = direct.memory
    done = memory.take_round(of, epoch=memory.begin_epoch(of))
    assert done is not None
    return done


class Interrupted(RedisRoundCapture):
    """Something happens before some of the pages are read."""

    def __init__(self, rounds: RoundRedis, happens: dict[int, Callable[[], object]]) -> None:
        super().__init__(rounds)
        self._happens = happens
        self.pages = 0

    def _page(self, *arguments: Any) -> Any:
        self.pages += 1
        self._happens.pop(self.pages, lambda: None)()
        return super()._page(*arguments)


def test_a_round_whose_reply_was_lost_is_captured_like_any_other(direct: InRedis, of: Shard) -> None:
    first = run(direct, of)
    with ReplySwallower(direct.client.connection_pool.connection_kwargs["port"]) as proxy:
        rounds = open_redis(proxy.url, round_timeout_seconds=30, timeout_seconds=30)
        memory = RedisShardMemory(rounds, history_generations=2)
        direct.announce(of, KEYS[:50], following=50)
        direct.consume(of, KEYS[:13])
        proxy.swallow(1)
        assert memory.take_round(of, epoch=first.epoch) is None
        rounds.close()
    after = RoundMark(epoch=first.epoch, generation=1, at_ms=first.at_ms)
    capture = direct.captures.capture(of, after=after)
    (lost,) = capture.rounds
    assert (lost.generation, capture.missed) == (2, None)
    assert (list(lost.announced), list(lost.consumed)) == (members(KEYS[:50]), members(KEYS[:13]))
    assert set(direct.pending(of).values()) == {lost.at_ms}


def test_a_round_that_another_owner_runs_meanwhile_moves_the_names_and_spoils_nothing(
    direct: InRedis, of: Shard
) -> None:
    direct.announce(of, KEYS, following=1)
    direct.consume(of, KEYS[:3_000])
    run(direct, of)

    def another_round() -> None:
        direct.announce(of, KEYS[:10], following=2)
        direct.consume(of, KEYS[3_000:3_500])
        run(direct, of)

    capture = Interrupted(direct.rounds, {3: another_round}).capture(of, after=None)
    (first,) = capture.rounds
    assert (list(first.announced), list(first.consumed)) == (members(KEYS), members(KEYS[:3_000]))
    assert (capture.generation, capture.missed) == (1, None)
    rest = direct.captures.capture(of, after=first.mark)
    assert [list(one.left_matched) for one in rest.rounds] == [members(KEYS[3_000:3_500])]


def test_a_set_that_rotates_away_while_it_is_read_is_missed_and_never_shortened(direct: InRedis, of: Shard) -> None:
    direct.announce(of, KEYS, following=1)
    run(direct, of)
    direct.announce(of, KEYS[:7], following=2)
    run(direct, of)
    interrupted = Interrupted(direct.rounds, {2: lambda: run(direct, of)})
    capture = interrupted.capture(of, after=None)
    assert [(one.generation, list(one.announced)) for one in capture.rounds] == [(2, members(KEYS[:7]))]
    assert capture.missed == (1, 1)


def test_a_wipe_in_the_middle_of_a_capture_shows_as_a_new_memory(direct: InRedis, of: Shard) -> None:
    direct.announce(of, KEYS, following=1)
    before = run(direct, of)

    def wipe() -> None:
        direct.client.delete(*direct.client.keys(f"{ShardKeys(of).root}:*"))
        direct.announce(of, KEYS[:5], following=1)
        run(direct, of)

    after = RoundMark(epoch=before.epoch, generation=0, at_ms=before.at_ms - 1)
    capture = Interrupted(direct.rounds, {2: wipe}).capture(of, after=after)
    assert capture.new_memory
    assert capture.epoch != before.epoch
    assert [(one.generation, list(one.announced)) for one in capture.rounds] == [(1, members(KEYS[:5]))]


def test_a_memory_that_changes_all_the_time_is_away(direct: InRedis, of: Shard) -> None:
    names = ShardKeys(of)
    direct.announce(of, KEYS[:5], following=1)
    run(direct, of)

    def another_memory() -> None:
        direct.client.set(names.epoch, f"{of.subscription.environment}:{capture.pages}")

    capture = Interrupted(direct.rounds, dict.fromkeys(range(1, VIEWS_MAX + 1), another_memory))
    with pytest.raises(RedisAway, match="changed"):
        capture.capture(of, after=None)


@pytest.mark.parametrize("lost", ["half:1", "commit:1", "matched:1"])
def test_a_kept_set_that_somebody_deleted_is_missed_and_not_empty(direct: InRedis, of: Shard, lost: str) -> None:
    direct.announce(of, KEYS[:9], following=1)
    run(direct, of)
    direct.announce(of, KEYS[9:12], following=2)
    direct.consume(of, KEYS[:2])
    run(direct, of)
    direct.client.delete(f"{ShardKeys(of).root}:{lost}")
    capture = direct.captures.capture(of, after=None)
    assert (capture.rounds, capture.missed) == ((), (1, 2))


def test_captures_beside_rounds_that_never_stop_tell_of_every_generation_once(direct: InRedis, of: Shard) -> None:
    rounds = 40
    batches = [KEYS[number * 50 : number * 50 + 1_500] for number in range(rounds)]
    epoch = direct.memory.begin_epoch(of)

    def reconcile() -> None:
        memory = direct.memory
        for number, batch in enumerate(batches):
            direct.announce(of, batch, following=number)
            direct.consume(of, batch[::2])
            assert memory.take_round(of, epoch=epoch) is not None

    owner = threading.Thread(target=reconcile)
    owner.start()
    mark: RoundMark | None = None
    told: list[int] = []
    while mark is None or mark.generation < rounds:
        capture = direct.captures.capture(of, after=mark)
        if capture.missed is not None:
            told += range(capture.missed[0], capture.missed[1] + 1)
        for one in capture.rounds:
            told.append(one.generation)
            batch = batches[one.generation - 1]
            assert (list(one.announced), list(one.consumed)) == (members(batch), members(batch[::2]))
            mark = one.mark
        if capture.missed is not None and not capture.rounds:
            mark = RoundMark(epoch=epoch, generation=capture.missed[1], at_ms=capture.now_ms)
    owner.join(60)
    assert told == list(range(1, rounds + 1))


def test_a_restarted_redis_gives_the_same_rounds(new_redis_server: Callable[[], RedisServer], of: Shard) -> None:
    """Cursors of before mean nothing to the new process: the members are counted."""
    server = new_redis_server()
    rounds = open_redis(server.url, timeout_seconds=60)
    with redis.Redis.from_url(server.url) as client:
        hands = InRedis(client, rounds, history_generations=2)
        hands.announce(of, KEYS, following=1)
        hands.consume(of, KEYS[1_000:])
        run(hands, of)

        def restart() -> None:
            server.restart()
            rounds.client.close()

        capture = Interrupted(rounds, {2: restart, 9: restart}).capture(of, after=None)
        (one,) = capture.rounds
        assert (list(one.announced), list(one.consumed)) == (members(KEYS), members(KEYS[1_000:]))
    rounds.close()


def test_history_that_is_switched_off_leaves_no_sets_behind(direct: InRedis, of: Shard) -> None:
    names = ShardKeys(of)
    for number in range(3):
        direct.announce(of, KEYS[number * 10 : number * 10 + 10], following=number)
        direct.consume(of, KEYS[number * 10 - 5 : number * 10 + 5] if number else [])
        run(direct, of)
    kept = {names.half_generation(1), names.half_generation(2), names.matched_generation(1), names.taken}
    assert direct.client.exists(*kept) == len(kept)
    epoch = direct.memory.begin_epoch(of)
    assert RedisShardMemory(direct.rounds).take_round(of, epoch=epoch) is not None
    left: Any = direct.client.keys(f"{names.root}:*")
    assert not {one.decode() for one in left} & (kept | {names.matched_generation(2), names.matched, names.half})


def test_a_line_about_a_round_that_says_nothing_stops_the_capture(direct: InRedis, of: Shard) -> None:
    run(direct, of)
    direct.client.hset(ShardKeys(of).taken, "1", "yesterday")
    with pytest.raises(InvariantViolation, match="yesterday"):
        direct.captures.capture(of, after=None)


@pytest.mark.parametrize("damaged", ["half:1", "matched:2", "taken"])
def test_a_kept_key_of_a_wrong_type_stops_the_round_and_takes_no_key_away(
    direct: InRedis, of: Shard, damaged: str
) -> None:
    run(direct, of)
    direct.announce(of, KEYS[:3], following=1)
    direct.client.delete(f"{ShardKeys(of).root}:{damaged}")
    direct.client.set(f"{ShardKeys(of).root}:{damaged}", "x")
    epoch = direct.memory.begin_epoch(of)
    with pytest.raises(InvariantViolation, match=damaged):
        direct.memory.state(of)
    with pytest.raises(InvariantViolation, match=damaged):
        direct.memory.take_round(of, epoch=epoch)
    assert direct.half(of) == set(KEYS[:3])
