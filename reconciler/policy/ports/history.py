"""What rounds moved, read back after they ran: for the history, which may lag or fail without holding a round up.

A round keeps the sets that it emptied for a few generations (rounds.py tells how many). A capture reads them, so a
round whose reply was lost, or that another owner ran, is captured like any other. A round without its sets is missed.
Keys are the bytes of unique keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.subscription import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMark:
    """Names one round. The time distinguishes two rounds of one number: Redis may fall back and run a number again."""

    epoch: str
    generation: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRound:
    """The ids that one round moved. Each sequence holds every id once, sorted."""

    shard: Shard
    epoch: str
    #: The fence after the round.
    generation: int
    #: Redis TIME of the round in milliseconds.
    at_ms: int
    #: Taken from the half set.
    announced: Sequence[bytes]
    #: Taken from the commit set.
    consumed: Sequence[bytes]
    #: Were pending before, and left because their consumption was recorded.
    left_matched: Sequence[bytes]

    @property
    def mark(self) -> RoundMark:
        """What the next capture gets as `after`."""
        return RoundMark(epoch=self.epoch, generation=self.generation, at_ms=self.at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What can still be read of a shard's rounds."""

    shard: Shard
    #: None: no epoch marker, Redis is new or lost its memory.
    epoch: str | None
    #: The fence.
    generation: int
    #: Redis TIME after everything was read.
    now_ms: int
    #: Rounds newer than `after`, in the order in which they ran, without a hole up to `generation`.
    rounds: Sequence[CapturedRound]
    #: First and last generation of `epoch` that ran after `after` and can no longer be read; None: none is missing.
    missed: tuple[int, int] | None
    #: True: `after` is of another memory; an unknown number of rounds after it is lost.
    new_memory: bool = False
    #: True: Redis fell back behind `after`; generations up to it ran, or will run, a second time.
    fell_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSnapshot:
    """A shard's pending set. Read the pages at once, and only once.

    A key that is pending all the while comes exactly once; one that comes or leaves meanwhile may be missing.
    """

    shard: Shard
    #: Epoch, generation and time are read before the first page, in one step.
    epoch: str | None
    generation: int
    at_ms: int
    #: (key, first seen in ms of Redis TIME), in pages of about a thousand. Raises RedisAway.
    pages: Iterator[Sequence[tuple[bytes, int]]]


class RoundCapture(Protocol):
    """Reads what rounds moved; writes nothing. Raises RedisAway; InvariantViolation for a key of a wrong type."""

    def capture(self, shard: Shard, *, after: RoundMark | None) -> Capture:
        """The rounds after `after` that are still readable; None: all that are, and what is missed counts from 1.

        Two captures with the same `after` give equal rounds unless some rotated away in between.
        """
        ...

    def snapshot(self, shard: Shard) -> PendingSnapshot:
        """All pending keys with epoch, generation and time."""
        ...
