"""Reads back the keys that rounds moved, for the history, which may lag or fail without delaying a round.

A round keeps the sets that it emptied for a few generations (rounds.py says how many). A capture reads these sets, so
it also captures a round whose reply was lost or that another owner ran. If a round's sets are gone, the round is
missed. Keys are the bytes of unique keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.subscription import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMark:
    """Identifies one round. If Redis falls back, a number may run again, and the time distinguishes both rounds."""

    epoch: str
    generation: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRound:
    """The keys that one round moved. Each sequence is sorted and has every key once."""

    shard: Shard
    epoch: str
    #: The fence after the round.
    generation: int
    #: Redis TIME of the round in milliseconds.
    at_ms: int
    #: Keys taken from the half set.
    announced: Sequence[bytes]
    #: Keys taken from the commit set.
    consumed: Sequence[bytes]
    #: Keys that were pending before and left because their consumption was recorded.
    left_matched: Sequence[bytes]

    @property
    def mark(self) -> RoundMark:
        """The value for `after` in the next capture."""
        return RoundMark(epoch=self.epoch, generation=self.generation, at_ms=self.at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The rounds of a shard that can still be read."""

    shard: Shard
    #: None: no epoch marker exists, because Redis is new or lost its memory.
    epoch: str | None
    #: The fence.
    generation: int
    #: Redis TIME after everything was read.
    now_ms: int
    #: Rounds newer than `after`, in their order. These rounds have no hole up to `generation`.
    rounds: Sequence[CapturedRound]
    #: The first and the last generation of `epoch` that ran after `after` and can no longer be read. None: no round is
    #: missing.
    missed: tuple[int, int] | None
    #: True if `after` is of another memory. Then an unknown number of rounds after `after` is lost.
    new_memory: bool = False
    #: True if Redis fell back behind `after`. Then generations up to `after` ran, or will run, a second time.
    fell_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSnapshot:
    """A shard's pending set. Read the pages at once and only once.

    A key that is pending during the whole reading comes exactly once. A key that arrives or leaves meanwhile may be
    missing.
    """

    shard: Shard
    #: Epoch, generation and time are read in one step before the first page.
    epoch: str | None
    generation: int
    at_ms: int
    #: Pages of about a thousand pairs (key, first seen in ms of Redis TIME). Reading can raise RedisAway.
    pages: Iterator[Sequence[tuple[bytes, int]]]


class RoundCapture(Protocol):
    """Reads the keys that rounds moved, without writing. Raises RedisAway, or InvariantViolation for a key of a wrong
    type."""

    def capture(self, shard: Shard, *, after: RoundMark | None) -> Capture:
        """Returns the readable rounds after `after`. None: returns all readable rounds, and missed rounds count from 1.

        Two captures with the same `after` return equal rounds, unless sets were deleted in between.
        """
        ...

    def snapshot(self, shard: Shard) -> PendingSnapshot:
        """Returns all pending keys with epoch, generation and time."""
        ...
