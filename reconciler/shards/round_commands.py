"""The command that runs a round, and the meaning of its answer (memory.py sends it).

A round is one script, round.lua, which explains each of its steps. A round that is run alone carries the script's text,
so Redis need not know the script before. From then on Redis knows the script's hash, and small rounds are sent together
by that hash. Plain commands would be worse in three ways:

- If a command of a MULTI fails, the later commands still run and delete. An error stops the script before it deletes.
- The script compares epoch and generation, so a client that repeats it moves nothing twice.
- The script changes pending key by key. So the cost of a round depends on the keys that were announced and consumed
  since the last round, and not on the number of pending keys.

Times of rounds never run backwards. Redis' clock does, if somebody sets it back or if a node with a slower clock takes
over. If the times of rounds are then far ahead of the clock, new keys get the clock's time, because they would
otherwise not age until the clock has caught up. Pending keys with a time ahead of the clock get the clock's time, too.
Lower times of keys do no harm, because the floor only requires that no key has a later time than its round.
"""

from __future__ import annotations

import hashlib
from typing import Any

from reconciler.contract.keyspace import (
    AHEAD_MS_MAX,
    COVERED_ROUNDS_MAX,
    HISTORY_GENERATIONS_MAX,
    TIMES_KEPT,
    ShardKeys,
)
from reconciler.contract.queue_proof import QueueProof, read_proof
from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation
from reconciler.policy.ports.rounds import RoundCounts, RoundDone
from reconciler.shards.access import translate
from reconciler.shards.script import script_text
from reconciler.shards.values import damaged_key, is_number, offsets_of, seen_ms_of, text_of

#: Members of one command; Lua's stack has room for about 8 000.
MEMBERS_A_COMMAND = 1_000

ROUND_SCRIPT = script_text("reconciler.shards", "round.lua")
ROUND_SHA = hashlib.sha1(ROUND_SCRIPT.encode(), usedforsecurity=False).hexdigest()


def round_command(
    keys: ShardKeys,
    *,
    epoch: str,
    generation: int,
    not_before_ms: int,
    commit_generations: int,
    history_generations: int,
    reads_proofs: bool = True,
) -> tuple[Any, ...]:
    """Returns EVAL, the text of the script, and its arguments."""
    kept = range(1, HISTORY_GENERATIONS_MAX + 1)
    names = [
        *(keys.epoch, keys.generation, keys.pending, keys.new, keys.taken, keys.offsets, keys.covered),
        keys.proofs if reads_proofs else keys.offsets,
        *(keys.half, *(keys.half_generation(number) for number in kept)),
        *(keys.matched, *(keys.matched_generation(number) for number in kept)),
        *(keys.commit, *(keys.commit_generation(number) for number in range(1, commit_generations + 1))),
    ]
    arguments = (epoch, generation, not_before_ms, commit_generations, HISTORY_GENERATIONS_MAX, history_generations)
    bounds = (TIMES_KEPT, MEMBERS_A_COMMAND, COVERED_ROUNDS_MAX, AHEAD_MS_MAX)
    return ("EVAL", ROUND_SCRIPT, len(names), *names, *arguments, *bounds)


def by_hash(command: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the same command for a Redis that knows the script."""
    return ("EVALSHA", ROUND_SHA, *command[2:])


def round_done(shard: Shard, *, epoch: str, generation: int, answer: Any) -> RoundDone | None:
    """Returns the round that the answer reports. None: this round did nothing, because another round had run or Redis
    has another epoch.

    Raises InvariantViolation for a key of a wrong type, and RedisAway for an error that passes (no memory, no
    permission). In both cases the script stopped before it deleted anything, and the next round does all of its work.
    """
    if isinstance(answer, Exception):
        error = translate(answer)
        stopped = type(error)(f"{shard}: the round of generation {generation + 1} stopped: {error}")
        if isinstance(error, InvariantViolation) and isinstance(stopped, InvariantViolation):
            stopped.cause = error.cause
        raise stopped from answer
    word, *rest = answer
    match text_of(word):
        case "moved":
            return None
        case "wrong":
            name, found, expected = (text_of(part) for part in rest)
            raise damaged_key(shard, name, f"is a {found}, expected a {expected}", cause="wrong-type")
    *numbers, floor, proofs, oldest, offsets = rest
    announced, fresh, before, added, late, after, now, at_ms, clock_ms = (int(number) for number in numbers)
    if now != generation + 1 or after != before + added - late:
        raise InvariantViolation(
            f"{shard}: the fence is {now} after generation {generation}, pending went from {before} "
            f"by +{added} -{late} to {after}",
            cause="torn-round",
        )
    return RoundDone(
        shard=shard,
        epoch=epoch,
        generation=now,
        at_ms=at_ms,
        clock_ms=clock_ms,
        offsets=offsets_of(offsets),
        oldest_pending_ms=seen_ms_of(float(oldest)) if oldest else None,
        floor=_floor_of(text_of(floor)),
        floor_proofs=_proofs_of(text_of(proofs)),
        counts=RoundCounts(
            announced=announced,
            matched=announced - fresh,
            pending_before=before,
            pending_added=added,
            pending_matched=late,
            pending_after=after,
        ),
    )


def _floor_of(lines: str) -> dict[str, int]:
    words = lines.split("\n") if lines else []
    queues, offsets = words[::2], words[1::2]
    if len(queues) != len(offsets) or not all(map(is_number, offsets)):
        return {}  # not in the form that rounds write
    return {queue: int(offset) for queue, offset in zip(queues, offsets, strict=True)}


def _proofs_of(lines: str) -> dict[str, QueueProof]:
    words = lines.split("\n")
    found = {queue: read_proof(text) for queue, text in zip(words[::2], words[1::2], strict=False)}
    return {queue: proof for queue, proof in found.items() if proof is not None}
