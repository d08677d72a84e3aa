"""Rounds, losses and repairs of the last hours, in buckets of equal width. Pages draw these buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBucket:
    """One range of time. Losses have times of Redis' clock; all other numbers have times of the ledger's clock."""

    from_ms: int
    #: Number of keys that rounds took as announced, and of keys that left because they were consumed. None: the rounds
    #: are too old to be read.
    announced: int | None
    matched: int | None
    #: Number of lost keys that were first seen in this time. A key counts once for each group.
    losses: int
    #: Number of repairs that were verified in this time.
    repairs: int
    #: Mean milliseconds from the first sight of a key to the proof of its loss, over all proofs in this time. None:
    #: there was no proof.
    detection_mean_ms: int | None
    detection_max_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """All buckets. The oldest bucket comes first. The last bucket has not ended yet."""

    width_ms: int
    buckets: Sequence[ActivityBucket]
