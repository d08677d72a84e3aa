"""Shard memories to be tested alike: in memory, over fakeredis, over redis-server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import fakeredis
import pytest
import redis

from reconciler.clock import ManualClock
from reconciler.contract.keyspace import ShardKeys, offsets_field
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import key_of, member_of
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.history import RoundCapture
from reconciler.policy.ports.rounds import RoundLeases, ShardMemory
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_capture import RedisRoundCapture
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.testing.memory_shards import MemoryShards

BACKENDS = ["memory", "fakeredis", pytest.param("redis", marks=pytest.mark.redis)]
QUEUE = AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="broker-a", queue_id=3)


class Shards(Protocol):
    """A shard memory with the hands of its other users: announcement consumer, recorder, and bad luck."""

    @property
    def memory(self) -> ShardMemory: ...

    @property
    def leases(self) -> RoundLeases: ...

    @property
    def captures(self) -> RoundCapture: ...

    def announce(self, shard: Shard, keys: Iterable[str], *, following: int) -> None: ...

    def set_apart(self, shard: Shard, keys: Iterable[str]) -> None: ...

    def consume(self, shard: Shard, keys: Iterable[str]) -> None: ...

    def pending(self, shard: Shard) -> dict[str, int]: ...

    def date(self, shard: Shard, keys: Iterable[str], *, first_seen_ms: int) -> None: ...

    def half(self, shard: Shard) -> set[str]: ...

    def position(self, shard: Shard) -> int | None: ...

    def wipe(self) -> None: ...

    def snapshot(self) -> object: ...

    def restore(self, snapshot: object) -> None: ...


@dataclass(frozen=True, slots=True)
class InMemory:
    store: MemoryShards
    clock: ManualClock

    @property
    def memory(self) -> ShardMemory:
        return self.store

    @property
    def leases(self) -> RoundLeases:
        return self.store

    @property
    def captures(self) -> RoundCapture:
        return self.store

    def announce(self, shard: Shard, keys: Iterable[str], *, following: int) -> None:
        expected = self.store.position(shard, QUEUE)
        assert self.store.admit(shard, QUEUE, expected=expected, following=following, unique_keys=list(keys)).admitted

    def set_apart(self, shard: Shard, keys: Iterable[str]) -> None:
        self.store._memory(shard).apart.update(keys)

    def consume(self, shard: Shard, keys: Iterable[str]) -> None:
        self.store._memory(shard).commit[0].update(keys)

    def pending(self, shard: Shard) -> dict[str, int]:
        return dict(self.store._memory(shard).pending)

    def date(self, shard: Shard, keys: Iterable[str], *, first_seen_ms: int) -> None:
        self.store._memory(shard).pending.update(dict.fromkeys(keys, first_seen_ms))

    def half(self, shard: Shard) -> set[str]:
        return set(self.store._memory(shard).half)

    def position(self, shard: Shard) -> int | None:
        return self.store.position(shard, QUEUE)

    def wipe(self) -> None:
        self.store.wipe()

    def snapshot(self) -> object:
        return self.store.save()

    def restore(self, snapshot: object) -> None:
        self.store.restore(snapshot)


@dataclass(frozen=True, slots=True)
class InRedis:
    """`client` is used for the other users' commands; `rounds` by the code under test."""

    client: redis.Redis
    rounds: RoundRedis
    commit_generations: int = 2
    history_generations: int = 0

    @property
    def memory(self) -> ShardMemory:
        return RedisShardMemory(
            self.rounds, commit_generations=self.commit_generations, history_generations=self.history_generations
        )

    @property
    def leases(self) -> RoundLeases:
        return RedisRoundLeases(self.rounds.client)

    @property
    def captures(self) -> RoundCapture:
        return RedisRoundCapture(self.rounds)

    def announce(self, shard: Shard, keys: Iterable[str], *, following: int) -> None:
        names, members = ShardKeys(shard), [member_of(key) for key in keys]
        with self.client.pipeline(transaction=True) as pipe:
            if members:
                pipe.sadd(names.half, *members)
            pipe.hset(names.offsets, offsets_field(QUEUE.broker, QUEUE.queue_id), following)
            pipe.execute()

    def set_apart(self, shard: Shard, keys: Iterable[str]) -> None:
        self.client.sadd(ShardKeys(shard).apart, *map(member_of, keys))

    def consume(self, shard: Shard, keys: Iterable[str]) -> None:
        members = [member_of(key) for key in keys]
        if members:
            self.client.sadd(ShardKeys(shard).commit, *members)

    def pending(self, shard: Shard) -> dict[str, int]:
        found: Any = self.client.zrange(ShardKeys(shard).pending, 0, -1, withscores=True)
        return {key_of(member): int(score) for member, score in found}

    def date(self, shard: Shard, keys: Iterable[str], *, first_seen_ms: int) -> None:
        self.client.zadd(ShardKeys(shard).pending, {member_of(key): first_seen_ms for key in keys})

    def half(self, shard: Shard) -> set[str]:
        found: Any = self.client.smembers(ShardKeys(shard).half)
        return {key_of(member) for member in found}

    def position(self, shard: Shard) -> int | None:
        found: Any = self.client.hget(ShardKeys(shard).offsets, offsets_field(QUEUE.broker, QUEUE.queue_id))
        return None if found is None else int(found)

    def wipe(self) -> None:
        self.client.flushall()

    def snapshot(self) -> object:
        names: Any = self.client.keys("*")
        return {name: self.client.dump(name) for name in names}

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, dict)
        self.client.flushall()
        for name, value in snapshot.items():
            self.client.restore(name, 0, value)


def opened_shards(request: pytest.FixtureRequest, *, history_generations: int = 0) -> Iterator[Shards]:
    """An empty memory of the kind that the request names, which is one of BACKENDS."""
    kept = {"history_generations": history_generations}
    if request.param == "memory":
        clock = ManualClock()
        yield InMemory(MemoryShards(clock, **kept), clock)
    elif request.param == "fakeredis":
        with fakeredis.FakeRedis() as client:
            yield InRedis(client, RoundRedis(client=client), **kept)
    else:
        server = request.getfixturevalue("shared_redis_server")
        rounds = open_redis(server.url, timeout_seconds=60)  # a busy machine is not away
        with redis.Redis.from_url(server.url) as client:
            yield InRedis(client, rounds, **kept)
            client.flushall()
        rounds.close()
