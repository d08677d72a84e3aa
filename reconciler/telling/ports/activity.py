"""What went on in the last hours, in buckets of equal width: what pages draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBucket:
    """One stretch of time; by the ledger's clock, but losses by that of Redis."""

    from_ms: int
    #: Keys in the half sets of its rounds, and keys that left because they were consumed. None: too many rounds ago.
    announced: int | None
    matched: int | None
    #: Keys first seen then that turned out to be lost, one a group.
    losses: int
    #: Repairs that were verified then.
    repairs: int
    #: Milliseconds from the first sight of a key to the proof of its loss, of the proofs of then. None: there is none.
    detection_mean_ms: int | None
    detection_max_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """All buckets, the oldest first; the last one is not over yet."""

    width_ms: int
    buckets: Sequence[ActivityBucket]
