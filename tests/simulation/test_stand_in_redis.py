"""The stand-in Redis does what fakeredis and a real server do, by the product's own commands and scripts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import fakeredis
import pytest
import redis

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.rounds import PendingKey
from reconciler.shards.client import RoundRedis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.sets import RedisCommitSets, RedisHalfSets
from tests.services.redis_server import RedisServer as RealServer
from tests.simulation.kernel import Kernel, Link, Process, ServerClock
from tests.simulation.redis_client import RedisServer, SimulatedRedis
from tests.simulation.redis_data import RedisData

QUEUE = AnnouncementQueue(unique_key_topic="KEYS", broker="broker-a", queue_id=0)


class Deployment:
    """The product's Redis adapters over some client."""

    def __init__(self, client: Any, environment: str, *, generations: int) -> None:
        self.shard = Shard(
            subscription=Subscription(environment=environment, topic="ORDERS", group="billing"), number=0
        )  # fmt: skip
        self.memory = RedisShardMemory(
            RoundRedis(client=client), commit_generations=generations, new_epoch=lambda: "epoch"
        )
        self.half_sets = RedisHalfSets(client)
        self.commit_sets = RedisCommitSets(client)
        self.offset: int | None = None

    def step(self, dice: random.Random, keys: list[str]) -> object:
        """One random step; what it answers but for times."""
        some = dice.sample(keys, dice.randint(1, 5))
        match dice.randrange(9):
            case 0 | 1:
                stale = dice.random() < 0.2
                answer = self.half_sets.admit(
                    self.shard, QUEUE, expected=7 if stale else self.offset, following=(self.offset or 0) + 1,
                    unique_keys=some, apart=some[: dice.choice((0, 0, 2))],
                )  # fmt: skip
                self.offset = answer.offset
                return answer
            case 2:
                self.commit_sets.record(self.shard.subscription, some, shards=1)
                return some
            case 3:
                return self.memory.forget(self.shard, some)
            case 4:
                return self.memory.pending_size(self.shard)[0], self.half_sets.size(self.shard)
            case 5:
                return [(p.unique_key, p.is_apart) for p in self._all_pending()]
            case 6:
                cursor, found = self.memory.apart(self.shard)
                return cursor, sorted(found)
            case 7:
                return self.memory.compared(self.shard, not_taken=some[:2], going_on=some[2:])
            case _:
                epoch = self.memory.begin_epoch(self.shard)
                done = self.memory.take_round(self.shard, epoch=epoch)
                assert done is not None
                return done.generation, dict(done.offsets), done.counts

    def _all_pending(self) -> list[PendingKey]:
        found = self.memory.due(self.shard, first_seen_until_ms=1 << 52, limit=1_000)
        return sorted(found, key=lambda pending: pending.unique_key)


def stand_in() -> SimulatedRedis:
    """A client whose process runs in no kernel: nothing ever waits."""
    kernel = Kernel(random.Random(1))
    kernel._limit = 1e12
    link = Link(kernel, "redis", delay_seconds=0.001)
    server = RedisServer(RedisData(ServerClock(kernel).now_ms), link)
    return SimulatedRedis(server, Process(kernel, "reconciler", "reconciler"))


def compare(other: Callable[[], Any], histories: int) -> None:
    """The same random steps on both."""
    for seed in range(histories):
        dice = random.Random(seed)
        keys = [f"{number:032X}" for number in range(12)]
        generations = dice.choice((1, 2, 4))
        ours, theirs = (
            Deployment(client, f"history-{seed}", generations=generations) for client in (stand_in(), other())
        )
        for number in range(dice.randint(10, 30)):
            state = dice.getstate()
            expected = theirs.step(dice, keys)
            dice.setstate(state)
            assert ours.step(dice, keys) == expected, f"history {seed}, step {number}"


def test_stand_in_agrees_with_fakeredis() -> None:
    server = fakeredis.FakeServer()
    client = fakeredis.FakeRedis(server=server)
    compare(lambda: client, 60)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stand_in_agrees_with_fakeredis_in_two_thousand_histories() -> None:
    server = fakeredis.FakeServer()
    client = fakeredis.FakeRedis(server=server)
    compare(lambda: client, 2_000)


@pytest.mark.redis
@pytest.mark.timeout(600)
def test_stand_in_agrees_with_a_real_server(redis_server: RealServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        compare(lambda: client, 500)


def test_a_script_that_was_changed_is_run_by_lua() -> None:
    client = stand_in()
    shard = Shard(subscription=Subscription(environment="e", topic="t", group="g"), number=0)
    source = "redis.call('SADD', KEYS[1], ARGV[1]) return {redis.call('SCARD', KEYS[1]), ARGV[1]}"
    sha = client.script_load(source)
    assert client.evalsha(sha, 1, ShardKeys(shard).half, b"\x01") == [1, b"\x01"]
