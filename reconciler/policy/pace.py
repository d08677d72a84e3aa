"""Converts numbers of rounds into time. The settings count rounds that come every five seconds. If rounds are closer
together, each number is scaled to the same amount per second. If rounds are further apart, the numbers stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

#: The time between the rounds that the settings count.
FULL_SECONDS = 5.0
#: Rounds that are closer together than this are treated as this far apart.
LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPace:
    """The time between rounds, with conversions of numbers of rounds."""

    interval_seconds: float = FULL_SECONDS

    @property
    def _share(self) -> float:
        """Returns the length of a round as a share of a full round's length."""
        return min(1.0, max(LEAST_SECONDS, self.interval_seconds) / FULL_SECONDS)

    def rounds(self, number: int) -> int:
        """Returns the number of rounds that together last at least as long as `number` full rounds."""
        return ceil(round(number / self._share, 6))

    def of_a_round(self, number: int) -> int:
        """Returns the amount of work of one round if a full round does `number`: the same amount per second, at least
        1."""
        return max(1, round(number * self._share))

    def full_rounds(self, number: int) -> float:
        """Returns the number of full rounds that together last as long as `number` rounds."""
        return number * self._share
