"""Converts numbers of rounds into time: settings count rounds that come every five seconds. Rounds that are closer
together get the same worth for each second. For rounds that are further apart, the numbers stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

#: The time between the rounds that the settings count.
FULL_SECONDS = 5.0
#: Rounds that are closer together than this count as this far apart.
LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPace:
    """The time between rounds, and what follows from it."""

    interval_seconds: float = FULL_SECONDS

    @property
    def _share(self) -> float:
        """The share of the time between two full rounds."""
        return min(1.0, max(LEAST_SECONDS, self.interval_seconds) / FULL_SECONDS)

    def rounds(self, number: int) -> int:
        """Returns how many rounds last at least as long as so many full ones."""
        return ceil(round(number / self._share, 6))

    def of_a_round(self, number: int) -> int:
        """Returns how much one round may do if a full one may do so much: the same amount per second, and at least
        1."""
        return max(1, round(number * self._share))

    def full_rounds(self, number: int) -> float:
        """Returns how many full rounds last as long as so many rounds."""
        return number * self._share
