"""The original's pair of sets; an adapter of round.ClassicSets.

A subscription has one half set and one commit set, which are those of shard 0. So an ordinary recorder with shards=1
fills them. The client has redis-py's own defaults, as the original design would. From version 6 on, redis-py sends a
MULTI again if its answer was lost, and returns the empty difference of the second MULTI.
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
    """Opens a client with redis-py's defaults; the caller closes it. Raises InvalidValue unless the URL names one
    server."""
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
    # The constructor is used instead of from_url(), because only the constructor sets redis-py's default retry.
    return redis.Redis(**options, ssl=scheme == "rediss")


class RedisClassicSets:
    """The pair of sets in Redis. Shared by threads, because its only state is the client."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def add_announced(self, subscription: Subscription, unique_keys: Sequence[str]) -> None:
        """Adds the keys by one SADD."""
        with translated_errors():
            self._client.sadd(_keys(subscription).half, *map(member_of, unique_keys))

    def take_difference(self, subscription: Subscription) -> list[str]:
        """Runs MULTI; SDIFF half commit; DEL half; DEL commit; EXEC. Afterwards Redis has none of these keys."""
        keys = _keys(subscription)
        with translated_errors(), self._client.pipeline(transaction=True) as pipeline:
            pipeline.sdiff([keys.half, keys.commit])
            pipeline.delete(keys.half)
            pipeline.delete(keys.commit)
            answers: Any = pipeline.execute()
        return sorted(map(key_of, answers[0]))


def _keys(subscription: Subscription) -> ShardKeys:
    return ShardKeys(Shard(subscription=subscription, number=0))
