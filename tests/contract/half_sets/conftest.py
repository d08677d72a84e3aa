"""The half sets under test: in memory, fakeredis with Lua, a real redis-server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import fakeredis
import pytest
import redis

from reconciler.clock import SystemClock
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import key_of
from reconciler.policy.ports.announcing import AnnouncementQueue, CommitSets, HalfSets
from reconciler.shards.access import RedisClient, open_client
from reconciler.shards.sets import RedisCommitSets, RedisHalfSets
from reconciler.testing.memory_shards import MemoryShards
from tests.services.redis_server import RedisServer

_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Sets of one kind, and what tests may do behind their back."""

    half_sets: HalfSets
    commit_sets: CommitSets
    subscription: Subscription
    client: RedisClient | None
    memory: MemoryShards | None

    def shard(self, number: int = 0) -> Shard:
        return Shard(subscription=self.subscription, number=number)

    def wipe(self) -> None:
        if self.memory is not None:
            self.memory.wipe()
            return
        assert self.client is not None
        self.client.flushdb()

    def half(self, number: int = 0) -> set[str]:
        """Announced keys."""
        if self.memory is not None:
            return (
                set(self.memory._shards[self.shard(number)].half)
                if self.shard(number) in self.memory._shards
                else set()
            )
        assert self.client is not None
        return _members(self.client, ShardKeys(self.shard(number)).half)

    def apart(self, number: int = 0) -> set[str]:
        """Announced keys that are set apart."""
        if self.memory is not None:
            return set(self.memory._memory(self.shard(number)).apart)
        assert self.client is not None
        return _members(self.client, ShardKeys(self.shard(number)).apart)

    def commit(self, number: int = 0) -> set[str]:
        """Consumed keys of the current generation."""
        if self.memory is not None:
            return (
                set(self.memory._shards[self.shard(number)].commit[0])
                if self.shard(number) in self.memory._shards
                else set()
            )
        assert self.client is not None
        return _members(self.client, ShardKeys(self.shard(number)).commit)


def _members(client: RedisClient, key: str) -> set[str]:
    members: Any = client.smembers(key)
    return {key_of(member) for member in members}


def queue(number: int = 0, broker: str = "broker-a") -> AnnouncementQueue:
    return AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker=broker, queue_id=number)


def subscription() -> Subscription:
    return Subscription(environment=f"contract{next(_numbers)}", topic="ORDERS", group="billing")


def redis_backend(client: redis.Redis) -> Backend:
    return Backend(
        half_sets=RedisHalfSets(client),
        commit_sets=RedisCommitSets(client),
        subscription=subscription(),
        client=client,
        memory=None,
    )


@pytest.fixture(params=["memory", "fakeredis", pytest.param("redis", marks=pytest.mark.redis)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "memory":
        memory = MemoryShards(SystemClock())
        yield Backend(half_sets=memory, commit_sets=memory, subscription=subscription(), client=None, memory=memory)
        return
    if request.param == "fakeredis":
        with closing(fakeredis.FakeRedis()) as fake:
            yield redis_backend(fake)
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    with closing(open_client(server.url.replace("/0", "/7"), timeout_seconds=60)) as client:
        assert isinstance(client, redis.Redis)
        client.flushdb()
        yield redis_backend(client)
