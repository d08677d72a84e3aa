"""The reply of EXEC is lost, another owner is quicker, Redis is damaged: nothing leaves pending unseen."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation, RedisAway
from reconciler.policy.ports.rounds import RoundDone
from reconciler.shards.access import open_client
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_commands import round_command, round_done
from tests.contract.ledger.rows import key, shard
from tests.contract.ledger.shards import InRedis
from tests.integration.ledger.reply_swallower import ReplySwallower
from tests.polling import eventually
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis

T = TypeVar("T")

PATIENT_SECONDS = 60.0


@pytest.fixture
def proxy(shared_redis_server: RedisServer) -> Iterator[ReplySwallower]:
    with ReplySwallower(shared_redis_server.port) as swallower:
        yield swallower


def through(proxy: ReplySwallower, *, retries: int, round_seconds: float = PATIENT_SECONDS) -> RoundRedis:
    """Clients as open_redis makes them, or with the retries that a default redis-py has.

    `round_seconds`: time for the reply to a round; only who waits for silence wants it short.
    """
    if retries == 0:
        return open_redis(proxy.url, round_timeout_seconds=round_seconds, timeout_seconds=PATIENT_SECONDS)
    client = redis.Redis.from_url(proxy.url, socket_timeout=PATIENT_SECONDS, retry=Retry(NoBackoff(), retries))
    return RoundRedis(client=client, round_timeout_seconds=round_seconds)


@pytest.mark.parametrize("retries", [0, 3], ids=["no-retry", "redis-py-retries"])
@pytest.mark.parametrize("hang", [False, True], ids=["reset", "silence"])
def test_a_lost_reply_loses_no_key_and_moves_the_fence_once(
    direct: InRedis, proxy: ReplySwallower, of: Shard, retries: int, hang: bool
) -> None:
    rounds = through(proxy, retries=retries, round_seconds=1.0 if hang else PATIENT_SECONDS)
    memory = RedisShardMemory(rounds)
    epoch = memory.begin_epoch(of)
    direct.announce(of, [key(n) for n in range(50)], following=50)
    direct.consume(of, [key(n) for n in range(13)])

    proxy.swallow(1, hang=hang)
    assert memory.take_round(of, epoch=epoch) is None
    eventually(lambda: proxy.swallowed == 1, within_seconds=60)  # the client may give up before the proxy is awake
    assert proxy.seen == 1, "the MULTI was not sent again"
    eventually(lambda: memory.state(of).generation == 1, within_seconds=60)
    assert set(direct.pending(of)) == {key(n) for n in range(13, 50)}

    patient = RedisShardMemory(replace(rounds, round_timeout_seconds=PATIENT_SECONDS))
    again = patient.take_round(of, epoch=epoch)
    assert again is not None
    assert (again.generation, again.counts.pending_after) == (2, 37)
    rounds.close()


@pytest.mark.promise("G4")
def test_histories_with_lost_replies_lose_nothing(direct: InRedis, proxy: ReplySwallower) -> None:
    dice = random.Random(20240611)
    rounds = through(proxy, retries=0)
    memory = RedisShardMemory(rounds)
    lost = 0
    for history in range(60):
        of = shard(f"histories-{history}")
        epoch = memory.begin_epoch(of)
        announced: set[str] = set()
        consumed: set[str] = set()
        settled: set[str] = set()
        for step in range(12):
            fresh = [key(history * 10_000 + step * 100 + n) for n in range(dice.randint(0, 9))]
            announced.update(fresh)
            direct.announce(of, fresh, following=step)
            some = [one for one in sorted(announced - consumed) if dice.random() < 0.5]
            consumed.update(some)
            direct.consume(of, some)
            before = memory.state(of).generation
            is_lost = dice.random() < 0.4
            proxy.swallow(int(is_lost))
            done = memory.take_round(of, epoch=epoch)
            assert (done is None) is is_lost
            lost += is_lost
            assert memory.state(of).generation == before + 1
            if dice.random() < 0.3:
                victims = sorted(direct.pending(of))[:3]
                settled.update(victims)
                memory.forget(of, victims)
        assert announced - consumed - settled <= set(direct.pending(of))
        assert set(direct.pending(of)) <= announced - settled
    assert lost > 200
    rounds.close()


def test_of_two_owners_at_once_each_generation_belongs_to_one(direct: InRedis, of: Shard) -> None:
    owners = [RedisShardMemory(direct.rounds), RedisShardMemory(direct.rounds)]
    epoch = owners[0].begin_epoch(of)
    done: list[RoundDone] = []
    barrier = threading.Barrier(3)

    def run(memory: RedisShardMemory) -> None:
        barrier.wait(60)
        for _ in range(60):
            one = memory.take_round(of, epoch=epoch)
            if one is not None:
                done.append(one)

    def feed() -> None:
        barrier.wait(60)
        for number in range(300):
            direct.announce(of, [key(number)], following=number)
            if number % 3:
                direct.consume(of, [key(number)])

    threads = [threading.Thread(target=run, args=(owner,)) for owner in owners] + [threading.Thread(target=feed)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    last = owners[0].take_round(of, epoch=epoch)
    assert last is not None
    rounds = sorted([*done, last], key=lambda one: one.generation)
    assert [one.generation for one in rounds] == list(range(1, last.generation + 1))
    assert set(direct.pending(of)) == {key(number) for number in range(0, 300, 3)}
    assert sum(one.counts.announced for one in rounds) == 300
    assert sum(one.counts.matched + one.counts.pending_matched for one in rounds) == 200


@pytest.mark.parametrize(
    "damaged", ["half", "commit", "pending", "offsets", "new", "commit:1", "matched", "generation", "epoch"]
)
def test_a_key_of_a_wrong_type_stops_the_shard_and_takes_no_key_away(direct: InRedis, of: Shard, damaged: str) -> None:
    memory, names = direct.memory, ShardKeys(of)
    epoch = memory.begin_epoch(of)
    if damaged != "half":
        direct.announce(of, [key(1)], following=1)
    direct.client.delete(f"{names.root}:{damaged}")
    if damaged in ("generation", "epoch"):
        direct.client.rpush(f"{names.root}:{damaged}", "x")
    else:
        direct.client.set(f"{names.root}:{damaged}", "x")
    with pytest.raises(InvariantViolation):
        memory.state(of)
    with pytest.raises(InvariantViolation):
        memory.take_round(of, epoch=epoch)
    if damaged != "half":
        assert direct.half(of) == {key(1)}


def test_a_generation_that_is_no_number_stops_the_shard(direct: InRedis, of: Shard) -> None:
    epoch = direct.memory.begin_epoch(of)
    direct.client.set(ShardKeys(of).generation, "seven")
    with pytest.raises(InvariantViolation, match="no number"):
        direct.memory.take_round(of, epoch=epoch)


@pytest.mark.parametrize("name", ["pending", "generation", "epoch", "taken"])
def test_who_reads_that_a_shard_is_stopped_learns_neither_its_key_nor_what_starts_it(
    direct: InRedis, of: Shard, name: str
) -> None:
    keys = ShardKeys(of)
    direct.memory.begin_epoch(of)
    key = getattr(keys, name)
    direct.client.delete(key)
    direct.client.rpush(key, "somebody wrote here")
    with pytest.raises(InvariantViolation) as stopped:
        direct.memory.state(of)
    assert stopped.value.cause == "wrong-type"
    (names,) = re.findall(r"then DEL (.+): the next round", str(stopped.value))
    assert set(names.split()) == {key, keys.epoch}
    direct.client.delete(*names.split())
    assert direct.memory.state(of).epoch is None, "its memory is lost, and read again"


def test_a_missing_generation_of_consumed_keys_is_not_renamed(direct: InRedis, of: Shard) -> None:
    memory, names = direct.memory, ShardKeys(of)
    epoch = memory.begin_epoch(of)
    direct.client.sadd(names.commit_generation(2), b"old")
    assert memory.take_round(of, epoch=epoch) is not None
    assert not direct.client.exists(names.commit, names.commit_generation(1), names.commit_generation(2))


def test_damage_right_before_exec_is_named_and_takes_no_key_away(direct: InRedis, of: Shard) -> None:
    """WRONGTYPE inside MULTI does not roll back: the round must say so instead of reporting zero."""
    memory, names = RedisShardMemory(direct.rounds), ShardKeys(of)
    epoch = memory.begin_epoch(of)
    direct.announce(of, [key(1)], following=1)
    damaging = _DamagesBeforeExec(direct.rounds, lambda: direct.client.set(names.commit, "text"))
    with pytest.raises(InvariantViolation, match="commit is a string"):
        damaging.take_round(of, epoch=epoch)
    assert direct.half(of) == {key(1)}


class _DamagesBeforeExec(RedisShardMemory):
    """Another program writes a wrong type after the types were checked."""

    def __init__(self, rounds: RoundRedis, damage: object) -> None:
        super().__init__(rounds)
        self._damage = damage

    def _command(self, keys, **values):  # type: ignore[no-untyped-def]  # the hook, not the interface
        self._damage()  # type: ignore[operator]
        return super()._command(keys, **values)


def test_a_round_that_a_client_sends_twice_moves_nothing_twice(direct: InRedis, of: Shard) -> None:
    """redis-py sends a MULTI again by itself; should one do so without its WATCH, the second run must see its fence."""
    direct.announce(of, [key(n) for n in range(9)], following=9)
    command = round_command(
        ShardKeys(of),
        epoch=direct.memory.begin_epoch(of),
        generation=0,
        not_before_ms=0,
        commit_generations=2,
        history_generations=0,
    )
    answers = []
    for _ in range(2):
        direct.consume(of, [key(20)])
        pipe: Any
        with direct.client.pipeline(transaction=True) as pipe:
            pipe.execute_command(*command)
            answers += pipe.execute()
    assert [answer[0] for answer in answers] == [b"ran", b"moved"]
    assert len(direct.pending(of)) == 9
    assert direct.memory.state(of).generation == 1
    assert direct.client.exists(ShardKeys(of).commit), "the consumed keys of the next round were not rotated"
    assert round_done(of, epoch="e", generation=0, answer=answers[1]) is None


def test_an_epoch_that_changes_under_the_round_stops_it(direct: InRedis, of: Shard) -> None:
    memory, names = RedisShardMemory(direct.rounds), ShardKeys(of)
    epoch = memory.begin_epoch(of)
    direct.announce(of, [key(1)], following=1)
    other = f"{of.subscription.environment}:other"
    racing = _DamagesBeforeExec(direct.rounds, lambda: direct.client.set(names.epoch, other))
    assert racing.take_round(of, epoch=epoch) is None
    assert direct.half(of) == {key(1)}


def test_redis_that_is_gone_is_away_and_comes_back(new_redis_server, of: Shard) -> None:  # type: ignore[no-untyped-def]  # a fixture's factory
    server = new_redis_server()
    rounds = open_redis(server.url, timeout_seconds=PATIENT_SECONDS, round_timeout_seconds=PATIENT_SECONDS)
    hasty_rounds = open_redis(server.url, timeout_seconds=0.5, round_timeout_seconds=0.5)
    memory, hasty = RedisShardMemory(rounds), RedisShardMemory(hasty_rounds)
    epoch = memory.begin_epoch(of)
    server.stop()
    for call in (
        lambda: memory.state(of),
        lambda: memory.begin_epoch(of),
        lambda: memory.take_round(of, epoch=epoch),
        lambda: memory.due(of, first_seen_until_ms=1, limit=1),
        lambda: memory.forget(of, [key(1)]),
        lambda: memory.pending_size(of),
    ):
        with pytest.raises(RedisAway):
            call()
    server.start()
    assert memory.state(of).epoch == epoch
    eventually(lambda: unless_away(lambda: hasty.state(of)), within_seconds=60)
    server.freeze()
    with pytest.raises(RedisAway):
        hasty.state(of)
    server.thaw()
    eventually(lambda: unless_away(lambda: hasty.take_round(of, epoch=epoch)), within_seconds=60)
    hasty_rounds.close()
    rounds.close()


def unless_away(ask: Callable[[], T]) -> T | None:
    """The answer of a Redis whose client has little patience; None: not in its time."""
    try:
        return ask()
    except RedisAway:
        return None


def test_full_read_only_and_forbidden_redis_is_away_and_keeps_its_sets(new_redis_server, of: Shard) -> None:  # type: ignore[no-untyped-def]  # a fixture's factory
    server = new_redis_server()
    rounds = open_redis(server.url, timeout_seconds=PATIENT_SECONDS)
    with redis.Redis.from_url(server.url) as client:
        hands = InRedis(client, rounds)
        epoch = hands.memory.begin_epoch(of)
        hands.announce(of, [key(1)], following=1)

        client.config_set("maxmemory", "1")
        with pytest.raises(RedisAway, match=r"OOM|maxmemory"):
            hands.memory.take_round(of, epoch=epoch)
        client.config_set("maxmemory", "0")

        client.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], commands=["+@read", "+@connection"])
        url = server.url.replace("redis://", "redis://reader:x@")
        reader = open_client(url, timeout_seconds=PATIENT_SECONDS)
        forbidden = replace(rounds, client=reader)
        with pytest.raises(RedisAway, match="permission"):
            RedisShardMemory(forbidden).take_round(of, epoch=epoch)
        reader.close()

        client.config_set("min-replicas-to-write", "1")
        with pytest.raises(RedisAway):
            hands.memory.take_round(of, epoch=epoch)
        client.config_set("min-replicas-to-write", "0")

        assert hands.half(of) == {key(1)}
        assert hands.memory.state(of).generation == 0
        done = hands.memory.take_round(of, epoch=epoch)
        assert done is not None
        assert done.counts.pending_after == 1
    rounds.close()


@pytest.mark.parametrize(
    "command", ["sdiffstore", "zadd", "zinterstore", "zrem", "unlink", "rename", "hset", "hdel", "hgetall", "incrby"]
)
def test_a_right_that_is_lost_while_rounds_run_leaves_no_half_round(
    command: str, new_redis_server: Callable[..., RedisServer], of: Shard
) -> None:
    """The sets moved on at each try without a round's note: the history lacked their keys, and no gap told of it."""
    server = new_redis_server()
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser("rounds", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all"])
        rounds = open_redis(server.url.replace("redis://", "redis://rounds:secret@"))
        hands = InRedis(client, rounds)
        if not is_asked_for_rights(client):
            pytest.skip("Redis 6.2 cannot be asked")
        epoch = hands.memory.begin_epoch(of)
        hands.announce(of, [key(1)], following=1)
        assert hands.memory.take_round(of, epoch=epoch) is not None
        hands.announce(of, [key(2)], following=2)
        hands.consume(of, [key(1)])
        everything = all_of(client)
        client.acl_setuser("rounds", enabled=True, commands=[f"-{command}"])
        for _ in range(3):
            with pytest.raises(RedisAway, match=f"'{command.upper()}' command of a round; grant it to the user"):
                hands.memory.take_round(of, epoch=epoch)
        assert all_of(client) == everything
        client.acl_setuser("rounds", enabled=True, commands=[f"+{command}"])
        done = hands.memory.take_round(of, epoch=epoch)
        assert done is not None
        counts = done.counts
        assert (counts.announced, counts.pending_matched, counts.pending_after) == (1, 1, 1)
    rounds.close()


def is_asked_for_rights(client: redis.Redis) -> bool:
    return bool(client.eval("return redis.acl_check_cmd and 1 or 0", 0))


def all_of(client: Any) -> dict[bytes, bytes]:
    """What the server has: key -> its dump."""
    return {name: client.dump(name) for name in client.keys()}  # noqa: SIM118 - of the server
