"""A few members of a subscription's commit sets, by which `status` sees whether recorders write keys."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.shards.access import RedisClient, translated_errors

#: Maximum number of members that are read, for all shards of a subscription together.
SAMPLE_MEMBERS = 100


def sample_commit_sets(
    client: RedisClient, subscription: Subscription, *, shards: int, commit_generations: int
) -> Iterator[tuple[Shard, bytes]]:
    """Yields at most SAMPLE_MEMBERS consumed keys of the last rounds, with their shards. Raises RedisAway.

    Uses SSCAN, for which the reconciler's login has the right already. The server may return longer pages than asked
    for, so each page is cut.
    """
    sets: list[tuple[Shard, str]] = []
    for number in range(shards):
        shard = Shard(subscription=subscription, number=number)
        keys = ShardKeys(shard)
        generations = range(1, commit_generations + 1)
        sets += [(shard, keys.commit), *((shard, keys.commit_generation(age)) for age in generations)]
    chosen = sets if len(sets) <= SAMPLE_MEMBERS else random.sample(sets, SAMPLE_MEMBERS)
    each = max(1, SAMPLE_MEMBERS // len(chosen))
    with translated_errors(), client.pipeline(transaction=False) as pipe:
        for _, name in chosen:
            pipe.sscan(name, 0, count=each)
        pages: list[Any] = pipe.execute()
    for (shard, _), (_, members) in zip(chosen, pages, strict=True):
        for member in list(members)[:each]:
            yield shard, bytes(member)
