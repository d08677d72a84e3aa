"""Leases in Redis end by themselves, and a late owner never touches its successor's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from reconciler.contract.keyspace import ShardKeys
from reconciler.errors import RedisAway
from reconciler.shards.access import RedisClient, open_client
from reconciler.shards.round_leases import RedisRoundLeases
from tests.contract.ledger.rows import shard
from tests.polling import eventually
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis

OF = shard("leases")
KEY = ShardKeys(OF).round_lease


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[RedisClient]:
    opened = open_client(redis_server.url, timeout_seconds=2)
    yield opened
    opened.close()


class Intruder(redis.client.Pipeline):
    """Between GET and EXEC the lease ends and another owner takes it."""

    def multi(self) -> None:
        with redis.Redis(connection_pool=self.connection_pool) as other:
            other.set(KEY, "successor", px=60_000)
        super().multi()


class RacedRedis(redis.Redis):
    def pipeline(self, transaction: bool = True, shard_hint: object = None) -> Intruder:
        return Intruder(self.connection_pool, self.response_callbacks, transaction, shard_hint)


def test_a_lease_ends_by_itself(client: RedisClient) -> None:
    leases = RedisRoundLeases(client)
    assert leases.take(OF, token="dead", lease_seconds=2.0)
    assert not leases.take(OF, token="heir", lease_seconds=60)
    eventually(lambda: leases.take(OF, token="heir", lease_seconds=60), within_seconds=60)
    assert not leases.take(OF, token="dead", lease_seconds=60)


def test_renewing_moves_the_end(client: RedisClient) -> None:
    leases = RedisRoundLeases(client)
    assert leases.take(OF, token="a", lease_seconds=1)
    assert leases.take(OF, token="a", lease_seconds=60)
    assert client.pttl(KEY) > 30_000


@pytest.mark.parametrize("act", ["renew", "release"])
def test_a_lease_that_changes_hands_meanwhile_is_left_alone(redis_server: RedisServer, act: str) -> None:
    with RacedRedis.from_url(redis_server.url) as raced:
        leases = RedisRoundLeases(raced)
        raced.set(KEY, "late", px=60_000)
        if act == "renew":
            assert not leases.take(OF, token="late", lease_seconds=60)
        else:
            leases.release(OF, token="late")
        assert raced.get(KEY) == b"successor"


def test_leases_need_redis(redis_server: RedisServer, client: RedisClient) -> None:
    redis_server.stop()
    with pytest.raises(RedisAway):
        RedisRoundLeases(client).take(OF, token="a", lease_seconds=1)
    with pytest.raises(RedisAway):
        RedisRoundLeases(client).release(OF, token="a")
