"""Leases in Redis end by themselves, and a late owner never touches its successor's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest
import redis

from reconciler.clock import Clock, ManualClock
from reconciler.contract.keyspace import ShardKeys
from reconciler.errors import RedisAway
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.shards.access import RedisClient, open_client
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.shards.sets import RedisHalfSets
from tests.contract.ledger.rows import shard
from tests.polling import eventually
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis

OF = shard("leases")
KEY = ShardKeys(OF).round_lease
LEASE_SECONDS = 30
QUEUE = AnnouncementQueue(unique_key_topic="UK", broker="broker-a", queue_id=0)


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[RedisClient]:
    opened = open_client(redis_server.url, timeout_seconds=60)
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
    assert leases.take(OF, token="dead", lease_seconds=60)
    assert not leases.take(OF, token="heir", lease_seconds=60)
    assert 0 < client.pttl(KEY) <= 60_000
    client.pexpire(KEY, 1)
    eventually(lambda: leases.take(OF, token="heir", lease_seconds=60), within_seconds=60)
    assert not leases.take(OF, token="dead", lease_seconds=60)


class Taken(Protocol):
    """A lease of the round, or of announcements."""

    def __call__(self, token: str) -> bool: ...


def taken_by(client: RedisClient, kind: str, clock: Clock | None = None) -> tuple[Taken, str]:
    """How one process takes the lease, and its key."""
    if kind == "round":
        leases = RedisRoundLeases(client, clock=clock)
        return lambda token: leases.take(OF, token=token, lease_seconds=LEASE_SECONDS), KEY
    sets = RedisHalfSets(client, clock=clock)
    key = ShardKeys(OF).announcement_lease(QUEUE.broker)
    return lambda token: sets.take_lease(OF, QUEUE, token=token, lease_seconds=LEASE_SECONDS), key


@pytest.mark.parametrize("kind", ["round", "announcements"])
def test_a_lease_of_a_dead_process_outlives_the_hour_that_redis_clock_was_set_back_by(
    client: RedisClient, kind: str
) -> None:
    clock = ManualClock()
    (dead, key), (heir, _) = taken_by(client, kind), taken_by(client, kind, clock)
    assert dead("dead")
    client.pexpire(key, 3_600_000)  # its end lies an hour further ahead now
    assert not heir("heir")
    clock.advance(LEASE_SECONDS - 1)
    assert not heir("heir")
    clock.advance(1)
    assert heir("heir")
    assert client.pttl(key) <= LEASE_SECONDS * 1000
    assert not dead("dead")


@pytest.mark.parametrize("kind", ["round", "announcements"])
def test_a_lease_that_its_holder_renews_is_taken_away_by_another_process_clock(client: RedisClient, kind: str) -> None:
    clock = ManualClock()
    (owner, _), (other, _) = taken_by(client, kind), taken_by(client, kind, clock)
    for _ in range(3):
        assert owner("owner")
        assert not other("other")
        clock.advance(LEASE_SECONDS)


@pytest.mark.parametrize("kind", ["round", "announcements"])
def test_a_lease_of_an_older_release_is_taken_away_while_it_is_renewed(client: RedisClient, kind: str) -> None:
    """It writes its token alone, which no renewal changes."""
    clock = ManualClock()
    other, key = taken_by(client, kind, clock)
    client.set(key, "older", px=60_000)
    for _ in range(3):
        assert not other("other")
        clock.advance(LEASE_SECONDS)
    assert other("older"), "a process that was upgraded in its place goes on"


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
