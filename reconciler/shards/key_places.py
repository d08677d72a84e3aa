"""Finds the places in Redis where a shard has one key; `explain` and the console show them."""

from __future__ import annotations

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import member_of
from reconciler.policy.ports.rounds import KeyPlaces
from reconciler.shards.access import RedisClient, translated_errors
from reconciler.shards.values import seen_ms_of


def places_of(client: RedisClient, shard: Shard, unique_key: str, *, commit_generations: int) -> KeyPlaces:
    """Reads without writing. Raises RedisAway, and InvariantViolation for a key of a wrong type.

    A round may run between two of these commands. The commands follow the order in which a round moves keys, so a key
    that moves meanwhile is still found.
    """
    keys, member = ShardKeys(shard), member_of(unique_key)
    commit_sets = [keys.commit, *(keys.commit_generation(age) for age in range(1, commit_generations + 1))]
    with translated_errors(), client.pipeline(transaction=False) as pipe:
        pipe.smismember(keys.half, [member])
        pipe.zscore(keys.pending, member)
        for name in commit_sets:
            pipe.smismember(name, [member])
        is_announced, first_seen, *are_consumed = pipe.execute()
    return KeyPlaces(
        is_announced=bool(is_announced[0]),
        first_seen_ms=None if first_seen is None else seen_ms_of(first_seen),
        is_consumed=any(is_consumed for (is_consumed,) in are_consumed),
    )
