"""Exact counts of milliseconds in buckets.

Order and partition of the values change nothing, and counts of prefixes add up. A bucket holds the values for which
`value + 1` has the same exponent and the same first 7 bits of mantissa. Below 255 ms a bucket has a single value.
Above, a bucket is 1/128 of the value wide. A percentile is the largest value of a bucket, so a percentile is at most
1/128 too large.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reconciler.audit.judge.keys import Longs
from reconciler.audit.result.values import Percentiles

_MANTISSA_BITS = 7
_SHIFT = np.int64(52 - _MANTISSA_BITS)
#: Bucket of the value 0.
_BASE = int(np.float64(1.0).view(np.int64)) >> int(_SHIFT)
#: Largest value with a bucket of its own. Larger values share one bucket, because the double of a value must be exact.
_VALUE_MAX = 2**52


@dataclass(slots=True)
class LatencyCounts:
    """Number of values in each bucket."""

    buckets: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    smallest_ms: int = 0
    largest_ms: int = 0

    @property
    def count(self) -> int:
        """Number of counted values."""
        return int(self.buckets.sum())

    def add(self, values: Longs) -> None:
        """Counts values. A value below 0 counts as 0."""
        if not len(values):
            return
        values = np.clip(values, 0, _VALUE_MAX)
        places = ((values + 1).astype(np.float64).view(np.int64) >> _SHIFT) - _BASE
        counts = np.bincount(places).astype(np.int64)
        self.merge(LatencyCounts(counts, smallest_ms=int(values.min()), largest_ms=int(values.max())))

    def merge(self, other: LatencyCounts) -> None:
        """Adds the counts of another object."""
        if not len(other.buckets):
            return
        first = not len(self.buckets)
        self.smallest_ms = other.smallest_ms if first else min(self.smallest_ms, other.smallest_ms)
        self.largest_ms = max(self.largest_ms, other.largest_ms)
        size = max(len(self.buckets), len(other.buckets))
        total = np.zeros(size, np.int64)
        total[: len(self.buckets)] += self.buckets
        total[: len(other.buckets)] += other.buckets
        self.buckets = total

    def percentiles(self) -> Percentiles | None:
        """Computes percentiles.

        The q-th percentile is the first bucket at whose end the running count reaches a share q of all values. None: no
        value was counted.
        """
        count = self.count
        if not count:
            return None
        ends = np.cumsum(self.buckets)

        def at(share_of_1000: int) -> int:
            rank = -(-count * share_of_1000 // 1000)
            bucket = int(np.searchsorted(ends, rank))
            return max(self.smallest_ms, min(self.largest_ms, _largest_of(bucket)))

        return Percentiles(
            count=count,
            smallest_ms=self.smallest_ms,
            p50_ms=at(500),
            p90_ms=at(900),
            p95_ms=at(950),
            p99_ms=at(990),
            p999_ms=at(999),
            largest_ms=self.largest_ms,
        )

    def encoded(self) -> bytes:
        """Encodes smallest, largest and the counts as little-endian int64."""
        return np.concatenate([[self.smallest_ms, self.largest_ms], self.buckets]).astype("<i8").tobytes()

    @classmethod
    def decoded(cls, data: bytes) -> LatencyCounts:
        """Decodes what `encoded` returned."""
        numbers: npt.NDArray[np.int64] = np.frombuffer(data, "<i8").astype(np.int64)
        return cls(numbers[2:], smallest_ms=int(numbers[0]), largest_ms=int(numbers[1]))


def _largest_of(bucket: int) -> int:
    next_start = float(np.int64((bucket + 1 + _BASE) << int(_SHIFT)).view(np.float64))
    return int(np.ceil(next_start)) - 2
