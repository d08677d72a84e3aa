"""What counts rounds counts time: numbers are those of rounds every five seconds, and rounds that are closer together
keep what they are worth in seconds, or a second. Rounds further apart keep the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

#: Time between the rounds that numbers are those of.
FULL_SECONDS = 5.0
#: Rounds that are closer together count as so far apart.
LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPace:
    """How far rounds are apart."""

    interval_seconds: float = FULL_SECONDS

    @property
    def _share(self) -> float:
        """Of the time between two full rounds."""
        return min(1.0, max(LEAST_SECONDS, self.interval_seconds) / FULL_SECONDS)

    def rounds(self, number: int) -> int:
        """Rounds that last at least as long as so many full ones."""
        return ceil(round(number / self._share, 6))

    def of_a_round(self, number: int) -> int:
        """What a round may do where a full one may do so much: as much a second, and something in any case."""
        return max(1, round(number * self._share))

    def full_rounds(self, number: int) -> float:
        """Full rounds that last as long as so many."""
        return number * self._share
