"""Hands in the worker's Redis, and a shard that is the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from reconciler.contract.subscription import Shard
from reconciler.shards.client import open_redis
from tests.contract.ledger.rows import new_environment, shard
from tests.contract.ledger.shards import InRedis
from tests.services.redis_server import RedisServer


@pytest.fixture
def direct(shared_redis_server: RedisServer) -> Iterator[InRedis]:
    rounds = open_redis(shared_redis_server.url, timeout_seconds=60)  # no test here waits for it to be away
    with redis.Redis.from_url(shared_redis_server.url, socket_timeout=60) as client:
        yield InRedis(client, rounds)
    rounds.close()


@pytest.fixture
def of() -> Shard:
    return shard(new_environment(), 0)
