"""Stores a subscription's number of shards where the consumers' recorders find it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import NoPermissionError

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.keyspace import meta_key
from reconciler.contract.subscription import Subscription
from reconciler.errors import RedisAway
from reconciler.shards.access import RedisClient, translate, translated_errors
from reconciler.shards.pipelines import answers_of
from reconciler.shards.values import text_of

COUNT_UNREADABLE = Code("shards.count-unreadable", key=Field.NAME, stored=Field.TEXT, shards=Field.NUMBER)
COUNT_DIFFERS = Code(
    "shards.count-differs", subscription=Field.NAME, stored=Field.NAME, key=Field.NAME, shards=Field.NUMBER
)


def keep_shard_count(client: RedisClient, subscription: Subscription, shards: int) -> None:
    """Writes the number unless Redis has one. Called before a round if the number is missing, such as after a loss of
    memory. Raises RedisAway."""
    with translated_errors():
        client.hsetnx(meta_key(subscription), "shards", str(shards))


def stored_shard_count(client: RedisClient, subscription: Subscription) -> str | None:
    """Returns the stored number as a text; None: none is stored, or the login may not read it. Raises RedisAway."""
    with translated_errors():
        try:
            stored: Any = client.hget(meta_key(subscription), "shards")
        except NoPermissionError:
            return None
    return None if stored is None else text_of(stored)


def stored_shard_counts(
    client: RedisClient, subscriptions: Sequence[Subscription]
) -> Mapping[Subscription, str | None]:
    """Returns what stored_shard_count() returns, for many subscriptions at once, without those whose server is away."""
    keys = list(map(meta_key, subscriptions))
    found: dict[Subscription, str | None] = {}
    for one, answer in zip(
        subscriptions, answers_of(client, [(key, ("HGET", key, "shards")) for key in keys]), strict=True
    ):
        if answer is None or isinstance(answer, NoPermissionError):
            found[one] = None
        elif not isinstance(answer, Exception):
            found[one] = text_of(answer)
        elif not isinstance(error := translate(answer), RedisAway):
            raise error from answer
    return found


def why_refused(subscription: Subscription, stored: str | None, shards: int) -> Fact:
    """Returns why the stored text is wrong: it is no number, or another number than `shards`. With two numbers, one
    message's keys would go to two shards."""
    key = meta_key(subscription)
    if stored is None or not (stored.isascii() and stored.isdigit()):
        return COUNT_UNREADABLE(key=key, stored=repr((stored or "")[:40]), shards=shards)
    return COUNT_DIFFERS(subscription=str(subscription), stored=stored[:40], key=key, shards=shards)
