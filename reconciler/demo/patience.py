"""Waiting for an act of the demo: it may be slow; one without progress is given up."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.clock import Clock
from reconciler.demo.processes import DemoFailed

#: How long an act may be without progress: a slow machine starts a dozen processes in it.
STANDSTILL_SECONDS = 120.0
PAUSE_SECONDS = 0.1


class Patience:
    """Ends when nothing has been counted for two minutes. Used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted = 0
        self._moved_seconds = clock.monotonic_seconds()

    def begin(self) -> None:
        """The next act counts from 0."""
        self._counted = 0

    def count(self, number: int) -> None:
        """More than ever before in this act starts the time again."""
        if number > self._counted:
            self._counted = number
            self._moved_seconds = self._clock.monotonic_seconds()

    def wait(self, reached: Callable[[], bool], what: str, *, beyond_seconds: float = 0.0) -> None:
        """Asks ten times a second, until it is reached; raises DemoFailed after a standstill."""
        seconds = STANDSTILL_SECONDS + beyond_seconds
        self._moved_seconds = self._clock.monotonic_seconds()
        while not reached():
            if self._clock.monotonic_seconds() - self._moved_seconds > seconds:
                raise DemoFailed(f"nothing moved for {seconds:.0f} s while waiting until {what}")
            self._clock.sleep(PAUSE_SECONDS)
