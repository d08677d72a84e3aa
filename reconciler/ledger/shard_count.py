"""The number of shards of a subscription, written where the recorders of the consumers find it."""

from __future__ import annotations

from typing import Any

from reconciler.contract.keyspace import meta_key
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError
from reconciler.redis_access import RedisClient, translated_errors


def require_shard_count(client: RedisClient, subscription: Subscription, shards: int) -> None:
    """Writes the number down unless one stands there; once a round, so that it comes back after a loss of memory.

    Raises ConfigurationError if another number stands there: keys of one message would go to two shards. RedisAway.
    """
    key = meta_key(subscription)
    with translated_errors():
        client.hsetnx(key, "shards", str(shards))
        stored: Any = client.hget(key, "shards")
    if stored is not None and int(stored) != shards:
        raise ConfigurationError(
            f"unique_key_topic.queues = {shards}: {subscription} runs with {int(stored)} shards; put the old number "
            "back, or drain as the docs say before changing it"
        )
