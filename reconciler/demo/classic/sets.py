"""The original's pair of sets: adapter of round.ClassicSets.

One half set and one commit set a subscription: those of shard 0, so that recorders with shards=1 fill them unchanged.
The client is redis-py's own default, as the original would use it: from version 6 on it sends a MULTI whose answer was
lost again and reports the empty second difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis
from redis.connection import parse_url

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.secret import Secret, revealed
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import key_of, member_of
from reconciler.contract.urls import read_redis_url, shown_url
from reconciler.errors import InvalidValue
from reconciler.shards.access import translated_errors


def open_classic_client(url: Secret) -> redis.Redis:
    """A client with redis-py's defaults; the caller closes it. Raises InvalidValue for what is not one server."""
    try:
        scheme = read_redis_url(url).scheme
    except ValueError as error:
        raise InvalidValue("redis.url", shown_url(url), str(error)) from None  # the text may hold a password
    if "+" in scheme:
        raise InvalidValue("redis.url", shown_url(url), "the original algorithm knows one server: use redis or rediss")
    options = dict(parse_url(revealed(url)))  # type: ignore[no-untyped-call]  # redis-py leaves it without annotations
    options.pop("connection_class", None)
    if "path" in options:
        options["unix_socket_path"] = options.pop("path")
    # Not from_url(): only the constructor brings redis-py's default retry along.
    return redis.Redis(**options, ssl=scheme == "rediss")


class RedisClassicSets:
    """Shared by threads: the client is, and nothing else is kept."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def add_announced(self, subscription: Subscription, unique_keys: Sequence[str]) -> None:
        """One SADD."""
        with translated_errors():
            self._client.sadd(_keys(subscription).half, *map(member_of, unique_keys))

    def take_difference(self, subscription: Subscription) -> list[str]:
        """MULTI; SDIFF half commit; DEL half; DEL commit; EXEC: after it Redis knows nothing of these keys any more."""
        keys = _keys(subscription)
        with translated_errors(), self._client.pipeline(transaction=True) as pipeline:
            pipeline.sdiff([keys.half, keys.commit])
            pipeline.delete(keys.half)
            pipeline.delete(keys.commit)
            answers: Any = pipeline.execute()
        return sorted(map(key_of, answers[0]))


def _keys(subscription: Subscription) -> ShardKeys:
    return ShardKeys(Shard(subscription=subscription, number=0))
