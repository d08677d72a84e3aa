"""The scan that ends an outage, into a Redis in which another program has written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
import redis

from reconciler.contract.keyspace import ShardKeys
from reconciler.policy.outage import OutageRecovery
from reconciler.shards.client import open_redis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.sets import RedisCommitSets
from tests.services.redis_server import RedisServer
from tests.unit.policy.world import ENVIRONMENT, World, key

pytestmark = pytest.mark.redis

KEYS = 20


def test_a_commit_key_of_a_wrong_type_costs_its_shard_only(new_redis_server: Callable[..., RedisServer]) -> None:
    """Every scan ended with it, so the outage never did."""
    server = new_redis_server()
    world = World(shards=4, groups=("billing", "other"))
    for number in range(KEYS):
        world.inbox.rows["billing", key(number)] = world.inbox_row("billing", key(number))
    damaged = world.shard(key(1))
    with (
        closing(open_redis(server.url, timeout_seconds=60)) as rounds,
        closing(redis.Redis(port=server.port)) as looking,
    ):
        looking.set(ShardKeys(damaged).commit, "somebody else's")
        world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="test")
        OutageRecovery(
            [world.topic],
            memory=RedisShardMemory(rounds),
            commit_sets=RedisCommitSets(rounds.client),
            inbox=world.inbox,
            outages=world.ledger.outages,
            rounds=world.ledger.rounds,
            clock=world.clock,
            events=world.events,
            page_rows=7,
        ).run(ENVIRONMENT)
        whole = [s for s in world.topic.shards_of(world.subscriptions[0]) if s.number != damaged.number]
        recorded = sum(int(looking.scard(ShardKeys(shard).commit)) for shard in whole)
    assert recorded == sum(world.topic.shard_of(key(number)) != damaged.number for number in range(KEYS))
    outage = world.ledger.outages.current(ENVIRONMENT)
    assert outage is not None
    assert outage.rounds_may_run
    assert list(outage.left_out) == ["ORDERS/billing"]
