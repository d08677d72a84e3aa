"""The number of shards of a subscription, written where the recorders of the consumers find it."""

from __future__ import annotations

from typing import Any

from reconciler.contract.keyspace import meta_key
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError
from reconciler.shards.access import RedisClient, translated_errors


def require_shard_count(client: RedisClient, subscription: Subscription, shards: int) -> None:
    """Writes the number down unless there is one; once a round, so that it comes back after a loss of memory.

    Raises ConfigurationError for another number (keys of one message would go to two shards) and for a text that is no
    number; RedisAway.
    """
    key = meta_key(subscription)
    with translated_errors():
        client.hsetnx(key, "shards", str(shards))
        stored: Any = client.hget(key, "shards")
    text = stored.decode(errors="replace") if isinstance(stored, bytes) else str(stored)
    if stored is None or text == str(shards):
        return
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(
            f"Redis key {key}: field shards = {text[:40]!r} is no number; another program writes there: delete the "
            f"field (HDEL {key} shards), the next round writes {shards}"
        )
    raise ConfigurationError(
        f"unique_key_topic.queues = {shards}: {subscription} runs with {text} shards; put the old number back, or "
        "drain as the docs say before changing it"
    )
