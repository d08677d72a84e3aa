"""Who shares an environment's subscriptions: an entry in Redis is a lease, which ends by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.keyspace import sharers_key
from reconciler.errors import ReconcilerError
from reconciler.policy.ports.rounds import Sharers
from reconciler.shards.access import RedisClient, open_client
from reconciler.shards.sharers import RedisSharers
from reconciler.testing.memory_shards import MemoryShards
from tests.contract.ledger.rows import new_environment
from tests.polling import eventually
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis
THESE, OTHERS = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[RedisClient]:
    opened = open_client(redis_server.url, timeout_seconds=60)
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", ["redis", "memory"])
def test_members_see_each_other_while_they_have_the_same_subscriptions(client: RedisClient, kind: str) -> None:
    sharers: Sharers = RedisSharers(client) if kind == "redis" else MemoryShards(ManualClock())
    environment = new_environment()

    def enter(token: str, digest: str = THESE, of: str = environment) -> set[str]:
        return set(sharers.enter(of, token=token, digest=digest, seconds=60))

    assert enter("a") == {"a"}
    assert enter("b") == {"a", "b"}
    assert enter("c", OTHERS) == {"c"}
    assert enter("d", of=new_environment()) == {"d"}
    assert enter("a") == {"a", "b"}
    sharers.leave(environment, token="b")
    assert enter("a") == {"a"}


def test_an_entry_that_is_not_renewed_ends_by_itself(client: RedisClient) -> None:
    sharers, environment = RedisSharers(client), new_environment()
    sharers.enter(environment, token="dead", digest=THESE, seconds=1)
    eventually(lambda: set(sharers.enter(environment, token="a", digest=THESE, seconds=60)) == {"a"}, within_seconds=60)
    assert client.hkeys(sharers_key(environment)) == [b"a"]
    assert 0 < client.pttl(sharers_key(environment)) <= 60_000


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(f"{round(time.time() * 1000) + 3_600_000} 30000 {THESE}", id="of a clock that was set back since"),
        pytest.param("", id="empty"),
        pytest.param("soon 1 x", id="another program's"),
    ],
)
def test_an_entry_that_cannot_be_one_of_now_is_taken_out(client: RedisClient, entry: str) -> None:
    sharers, environment = RedisSharers(client), new_environment()
    client.hset(sharers_key(environment), "odd", entry)
    assert set(sharers.enter(environment, token="a", digest=THESE, seconds=60)) == {"a"}
    assert client.hkeys(sharers_key(environment)) == [b"a"]


def test_a_key_of_another_program_in_its_place_is_told(client: RedisClient) -> None:
    environment = new_environment()
    client.set(sharers_key(environment), "x")
    with pytest.raises(ReconcilerError):
        RedisSharers(client).enter(environment, token="a", digest=THESE, seconds=60)
