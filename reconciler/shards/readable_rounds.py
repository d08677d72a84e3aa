"""Decides which rounds of a shard a capture still has to read, and which it can never read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.contract.keyspace import HISTORY_GENERATIONS_MAX
from reconciler.policy.ports.history import RoundMark


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRound:
    """A round's own note about the sets that it kept: its time, and their numbers of members."""

    at_ms: int
    announced: int
    consumed: int
    matched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableRounds:
    """Generations from first_readable to the newest are still to be read. Generations from first_new to first_readable
    - 1 can no longer be read."""

    first_new: int
    first_readable: int
    new_memory: bool = False
    fell_back: bool = False


def readable_rounds(
    after: RoundMark | None, *, epoch: str | None, generation: int, taken: Mapping[int, TakenRound]
) -> ReadableRounds:
    """Compares Redis with `after`, the last round that was captured.

    `taken`: the entries of K:taken for rounds up to `generation`. A round without an entry has kept no sets.
    """
    if epoch is None:
        return ReadableRounds(first_new=1, first_readable=generation + 1, new_memory=after is not None)
    oldest = generation + 1
    while oldest - 1 in taken and generation - oldest + 1 < HISTORY_GENERATIONS_MAX:
        oldest -= 1
    if after is None or after.epoch != epoch:
        return ReadableRounds(first_new=1, first_readable=oldest, new_memory=after is not None)
    again = [number for number, one in taken.items() if number <= after.generation and one.at_ms > after.at_ms]
    if not again and generation >= after.generation:
        first_new = after.generation + 1
        return ReadableRounds(first_new=first_new, first_readable=max(first_new, oldest))
    # Redis fell back behind `after`. Rounds in `again` ran since then, because they have later times than `after`.
    first_new = min(again, default=generation + 1)
    return ReadableRounds(first_new=first_new, first_readable=max(first_new, oldest), fell_back=True)
