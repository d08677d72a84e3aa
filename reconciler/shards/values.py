"""Reads the values of a shard's small keys from Redis' answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from redis.cluster import RedisCluster

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation
from reconciler.policy.ports.rounds import ShardState
from reconciler.shards.access import RedisClient

#: The highest generation that is accepted. Near 2**63, INCRBY would fail in the middle of a round.
GENERATION_MAX = 2**62


def time_ms_of(client: RedisClient, connection: Any, keys: ShardKeys) -> int:
    """Returns the time of the node that has the shard. A cluster's pipeline refuses TIME, because TIME has no key."""
    if isinstance(client, RedisCluster):
        node = client.get_node_from_key(keys.pending)  # type: ignore[no-untyped-call]  # redis-py has no annotation
        answer: Any = client.time(target_nodes=node)
    else:
        answer = connection.execute_command("TIME")
    seconds, microseconds = answer
    return int(seconds) * 1000 + int(microseconds) // 1000


def state_of_script(shard: Shard, answer: Sequence[Any]) -> ShardState:
    """Reads five values of a script's answer: epoch, generation, number and time of the last round, seconds and
    microseconds of TIME. Missing values are ''. Raises InvariantViolation."""
    epoch, number, last, seconds, microseconds = answer
    generation = generation_of(shard, number or None)
    return ShardState(
        epoch=epoch_of(shard, epoch or None),
        generation=generation,
        now_ms=int(seconds) * 1000 + int(microseconds) // 1000,
        round_at_ms=round_time_of(last, generation=generation),
    )


def epoch_of(shard: Shard, answer: Any) -> str | None:
    """Returns the epoch; None if Redis has none. Raises InvariantViolation for the epoch of another environment."""
    if answer is None:
        return None
    epoch, environment = text_of(answer), shard.subscription.environment
    if epoch.rpartition(":")[0] != environment:
        keys = ShardKeys(shard)
        remedy = f"end the program that wrote it, then delete each key that begins with {keys.root}"
        wrong = f"{keys.epoch} is {epoch!r}, not of environment {environment!r}; rounds stop: {remedy}"
        raise InvariantViolation(f"{shard}: {wrong}", cause="other-environment")
    return epoch


def generation_of(shard: Shard, answer: Any) -> int:
    """Returns the generation, 0 before the first round. Raises InvariantViolation for a text that is no number."""
    text = text_of(answer if answer is not None else 0)
    # The text must be exactly what INCRBY writes, because the round compares texts.
    if not text.isascii() or not text.isdigit() or str(int(text[:20])) != text or int(text) > GENERATION_MAX:
        raise damaged_key(
            shard, ShardKeys(shard).generation, f"is {answer!r:.40}, which is no number", cause="no-number"
        )
    return int(text)


def damaged_key(shard: Shard, key: str, found: str, *, cause: str) -> InvariantViolation:
    """Returns the error for a key that another program has written. If a person deletes this key and the epoch, the
    next round finds the memory lost, and the announcements are read again."""
    names = " ".join(dict.fromkeys((key, ShardKeys(shard).epoch)))
    remedy = f"end the program that wrote it, then DEL {names}: the next round reads the announcements again"
    return InvariantViolation(f"{shard}: {key} {found}; rounds stop: {remedy}", cause=cause)


def round_time_of(answer: Any, *, generation: int) -> int | None:
    """Returns the time in ms of the round with number `generation`. None: the stored time is missing, or belongs to
    another round."""
    number, _, at_ms = text_of(answer or "").partition(" ")
    return int(at_ms) if number == str(generation) and at_ms.isascii() and at_ms.isdigit() else None


def seen_ms_of(score: float) -> int:
    """Returns first_seen_ms from a score; 0 for an infinite score. The next round gives a key with +inf a new time."""
    return int(score) if math.isfinite(score) else 0


def text_of(answer: Any) -> str:
    """Returns an answer of Redis as a text."""
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)


def pairs_of(answer: Any) -> list[tuple[Any, Any]]:
    """Returns the fields of a hash with their values."""
    # redis-py returns a mapping for commands that it knows, and otherwise Redis' flat list.
    if isinstance(answer, Mapping):
        return list(answer.items())
    return list(zip(answer[::2], answer[1::2], strict=True))


def offsets_of(answer: Any) -> dict[str, int]:
    """Returns queue -> next offset from the hash of offsets. A field whose value is no number is left out."""
    texts = ((text_of(field), text_of(offset)) for field, offset in pairs_of(answer))
    return {field: int(offset) for field, offset in texts if is_number(offset)}


def is_number(text: str) -> bool:
    """Returns True for a whole number in the form that Redis and scripts write."""
    return text.isascii() and text.isdigit()
