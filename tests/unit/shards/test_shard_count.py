"""The number of shards is written once; another number is refused until it is drained."""

from __future__ import annotations

import fakeredis
import pytest

from reconciler.contract.keyspace import meta_key
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError
from reconciler.shards.count import require_shard_count

OF = Subscription(environment="test", topic="ORDERS", group="billing")


def test_another_number_of_shards_is_refused_and_the_first_stays() -> None:
    with fakeredis.FakeRedis() as client:
        require_shard_count(client, OF, 16)
        require_shard_count(client, OF, 16)
        with pytest.raises(ConfigurationError, match="runs with 16 shards"):
            require_shard_count(client, OF, 32)
        assert client.hget(meta_key(OF), "shards") == b"16"
        client.flushall()
        require_shard_count(client, OF, 32)


@pytest.mark.parametrize("stored", [b"", b"sixteen", b"\xff", b"-16", b"16.0"])
def test_a_stored_value_that_is_no_number_is_named_with_its_key_and_a_remedy_that_works(stored: bytes) -> None:
    with fakeredis.FakeRedis() as client:
        client.hset(meta_key(OF), "shards", stored)
        with pytest.raises(ConfigurationError, match="is no number") as caught:
            require_shard_count(client, OF, 16)
        assert f"HDEL {meta_key(OF)} shards" in str(caught.value)
        client.hdel(meta_key(OF), "shards")
        require_shard_count(client, OF, 16)
        assert client.hget(meta_key(OF), "shards") == b"16"
