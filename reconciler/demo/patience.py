"""Waits for an act of the demo. A slow act may continue; an act without progress is given up."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.clock import Clock
from reconciler.demo.processes import DemoFailed

#: Longest time without progress in an act. Even a slow machine starts a dozen processes within this time.
STANDSTILL_SECONDS = 120.0
PAUSE_SECONDS = 0.1


class Patience:
    """Gives an act up after two minutes without progress. One thread uses this object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted = 0
        self._moved_seconds = clock.monotonic_seconds()

    def begin(self) -> None:
        """Begins the next act, with no progress yet."""
        self._counted = 0

    def count(self, number: int) -> None:
        """Records progress. A number higher than all earlier numbers of this act restarts the time."""
        if number > self._counted:
            self._counted = number
            self._moved_seconds = self._clock.monotonic_seconds()

    def wait(self, reached: Callable[[], bool], what: str, *, beyond_seconds: float = 0.0) -> None:
        """Calls `reached` ten times per second until it returns True. Raises DemoFailed after a standstill."""
        seconds = STANDSTILL_SECONDS + beyond_seconds
        self._moved_seconds = self._clock.monotonic_seconds()
        while not reached():
            if self._clock.monotonic_seconds() - self._moved_seconds > seconds:
                raise DemoFailed(f"nothing moved for {seconds:.0f} s while waiting until {what}")
            self._clock.sleep(PAUSE_SECONDS)
