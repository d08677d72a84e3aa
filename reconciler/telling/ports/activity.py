"""Rounds, losses and repairs of the last hours in buckets of equal width, which pages draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBucket:
    """One range of time, by the ledger's clock; losses by Redis' clock."""

    from_ms: int
    #: Announced keys of its rounds, and keys that left because they were consumed. None: its rounds are too old to be
    #: read.
    announced: int | None
    matched: int | None
    #: Keys first seen then that turned out to be lost, one per group.
    losses: int
    #: Repairs that were verified then.
    repairs: int
    #: Mean milliseconds from the first sight of a key to the proof of its loss, for proofs in that time. None: there
    #: was no proof.
    detection_mean_ms: int | None
    detection_max_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """All buckets, the oldest first; the last one has not ended yet."""

    width_ms: int
    buckets: Sequence[ActivityBucket]
