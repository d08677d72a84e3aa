"""The original's pair of sets on a real Redis: what it takes, and how redis-py's own retry loses all of it silently."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.demo.classic.sets import RedisClassicSets, open_classic_client
from reconciler.errors import InvalidValue, RedisAway
from reconciler.shards.sets import RedisCommitSets
from tests.integration.ledger.reply_swallower import ReplySwallower
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis

SUBSCRIPTION = Subscription(environment="classic", topic="ORDERS", group="billing")
KEYS = [f"{number:032X}" for number in range(37)]


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with open_classic_client(redis_server.url) as opened:
        yield opened


def test_the_difference_is_what_was_announced_and_not_recorded_and_both_sets_are_empty(client: redis.Redis) -> None:
    sets = RedisClassicSets(client)
    sets.add_announced(SUBSCRIPTION, KEYS)
    RedisCommitSets(client).record(SUBSCRIPTION, KEYS[3:], shards=1)
    assert sets.take_difference(SUBSCRIPTION) == KEYS[:3]
    keys = ShardKeys(Shard(subscription=SUBSCRIPTION, number=0))
    assert client.exists(keys.half, keys.commit) == 0
    assert sets.take_difference(SUBSCRIPTION) == []


def test_what_it_loses_a_lost_answer_of_exec_is_asked_again_and_says_that_nothing_is_missing(
    client: redis.Redis, redis_server: RedisServer
) -> None:
    """Documented, not mended: hole H1."""
    RedisClassicSets(client).add_announced(SUBSCRIPTION, KEYS)
    with ReplySwallower(redis_server.port) as proxy, open_classic_client(proxy.url) as through:
        through.ping()
        proxy.swallow(1)
        assert RedisClassicSets(through).take_difference(SUBSCRIPTION) == []
        assert proxy.swallowed == 1
        assert proxy.seen == 2


def test_a_redis_that_is_gone_is_away(redis_server: RedisServer, client: redis.Redis) -> None:
    redis_server.stop()
    with pytest.raises(RedisAway):
        RedisClassicSets(client).take_difference(SUBSCRIPTION)


def test_several_servers_are_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match=r"redis\.url"):
        open_classic_client("redis+cluster://127.0.0.1:7000")
