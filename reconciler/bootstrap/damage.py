"""What status says about values that nobody can read, and about recorders that write no keys."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import fault_of_member
from reconciler.errors import InvariantViolation, RedisAway
from reconciler.ledger.commit_samples import sample_commit_sets
from reconciler.plan import TopicPlan
from reconciler.ports import RepairCount, VerdictCount
from reconciler.redis_access import RedisClient


def damaged_rows(verdicts: Iterable[VerdictCount], repairs: Iterable[RepairCount]) -> list[str]:
    """Ledger rows of which nobody can read how they stand."""
    found = [f"{v.subscription}: {v.count} rows: {v.damage}" for v in verdicts if v.damage is not None]
    return found + [f"{r.topic}: {r.count} repairs that nobody works on: {r.damage}" for r in repairs if r.damage]


def misshapen_members(client: RedisClient, topic: TopicPlan, *, commit_generations: int) -> list[str]:
    """One line a subscription whose recorder writes members that no announced key equals; a sample is looked at."""
    lines = []
    for plan in topic.subscriptions:
        seen = 0
        wrong: list[tuple[Shard, bytes, str]] = []
        with suppress(RedisAway, InvariantViolation):  # told elsewhere: away, or the shard is stopped
            for shard, member in sample_commit_sets(
                client, plan.subscription, shards=topic.shards, commit_generations=commit_generations
            ):
                seen += 1
                fault = fault_of_member(member)
                wrong += [(shard, member, fault)] if fault is not None else []
        if wrong:
            shard, member, fault = wrong[0]
            lines.append(
                f"{plan.subscription}: {len(wrong)} of {seen} members sampled in its commit sets match no key: each "
                f"key costs a look-up; in shard {shard.number} {ascii(member[:64])[1:]} is {fault}; mend what the "
                "group adds to Redis (docs/reference/redis-keys.md)"
            )
    return lines
