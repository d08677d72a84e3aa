"""The least difference between two servers' clocks that follows from readings of both. Pure.

All code that compares times of different servers assumes that their clocks differ by at most
`rounds.skew_margin_seconds`. This module checks that assumption.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """One reading of a server's clock, taken between two moments of this host's own clock."""

    at_ms: int
    #: When the host asked, in its own monotonic seconds.
    asked_seconds: float
    answered_seconds: float

    def ahead_of(self, other: ClockReading) -> float:
        """Returns the least number of seconds by which this clock is ahead. Negative: the clock is behind. 0.0: nothing
        is proved.

        One host must have made both readings.
        """
        at_least = self._offset_min - other._offset_max
        at_most = self._offset_max - other._offset_min
        return at_least if at_least > 0 else min(at_most, 0.0)

    @property
    def _offset_min(self) -> float:
        return self.at_ms / 1000 - self.answered_seconds

    @property
    def _offset_max(self) -> float:
        return self.at_ms / 1000 - self.asked_seconds


def apart_seconds(
    redis_ms: int, brokers_ms: Iterable[int], *, read_within_seconds: float, margin_seconds: float
) -> float:
    """Returns `ahead_of` for the broker that differs most from Redis. Readings that took longer than
    `read_within_seconds` are left out. 0.0: the difference is within the margin."""
    redis, *brokers = (
        ClockReading(at_ms=at_ms, asked_seconds=0.0, answered_seconds=read_within_seconds)
        for at_ms in (redis_ms, *brokers_ms)
    )
    worst = max((broker.ahead_of(redis) for broker in brokers), key=abs, default=0.0)
    return worst if abs(worst) > margin_seconds else 0.0
