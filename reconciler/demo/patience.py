"""Waits for an act of the demo. A slow act may continue, but one without progress is given up."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.clock import Clock
from reconciler.demo.processes import DemoFailed

#: How long an act may be without progress: a slow machine starts a dozen processes within it.
STANDSTILL_SECONDS = 120.0
PAUSE_SECONDS = 0.1


class Patience:
    """Ends after two minutes without progress. Used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted = 0
        self._moved_seconds = clock.monotonic_seconds()

    def begin(self) -> None:
        """Begins the next act, which counts from 0."""
        self._counted = 0

    def count(self, number: int) -> None:
        """Counts progress. A higher number than ever before in this act restarts the time."""
        if number > self._counted:
            self._counted = number
            self._moved_seconds = self._clock.monotonic_seconds()

    def wait(self, reached: Callable[[], bool], what: str, *, beyond_seconds: float = 0.0) -> None:
        """Checks ten times per second until `reached`. Raises DemoFailed after a standstill."""
        seconds = STANDSTILL_SECONDS + beyond_seconds
        self._moved_seconds = self._clock.monotonic_seconds()
        while not reached():
            if self._clock.monotonic_seconds() - self._moved_seconds > seconds:
                raise DemoFailed(f"nothing moved for {seconds:.0f} s while waiting until {what}")
            self._clock.sleep(PAUSE_SECONDS)
