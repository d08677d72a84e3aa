"""The number of shards is written once, and what another text in its place means is told with what mends it."""

from __future__ import annotations

import fakeredis
import pytest

from reconciler.contract.keyspace import meta_key
from reconciler.contract.subscription import Subscription
from reconciler.shards.count import keep_shard_count, stored_shard_count, why_refused
from reconciler.shards.sets import RedisCommitSets
from reconciler.words import said

OF = Subscription(environment="test", topic="ORDERS", group="billing")


def test_the_first_number_stays() -> None:
    with fakeredis.FakeRedis() as client:
        assert stored_shard_count(client, OF) is None
        keep_shard_count(client, OF, 16)
        keep_shard_count(client, OF, 32)
        assert stored_shard_count(client, OF) == "16"
        assert f"HSET {meta_key(OF)} shards 32" in said(why_refused(OF, "16", 32))


@pytest.mark.parametrize("stored", [b"", b"sixteen", b"\xff", b"-16", b"16.0"])
def test_a_stored_value_that_is_no_number_is_named_with_its_key_and_a_remedy_that_works(stored: bytes) -> None:
    with fakeredis.FakeRedis() as client:
        client.hset(meta_key(OF), "shards", stored)
        why = said(why_refused(OF, stored_shard_count(client, OF), 16))
        assert "is no number" in why
        assert f"HDEL {meta_key(OF)} shards" in why
        client.hdel(meta_key(OF), "shards")
        keep_shard_count(client, OF, 16)
        assert client.hget(meta_key(OF), "shards") == b"16"


def test_a_value_that_is_no_number_ends_no_recorder() -> None:
    with fakeredis.FakeRedis() as client:
        client.hset(meta_key(OF), "shards", b"sixteen")
        assert RedisCommitSets(client).stored_shards(OF) is None
