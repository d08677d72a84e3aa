"""The clock of a host that was never set right."""

from __future__ import annotations

from reconciler.clock import SystemClock


class ClockBehind(SystemClock):
    """The machine's clocks, whose wall time is behind by so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._behind_ms = round(seconds * 1000)

    def now_ms(self) -> int:
        """Wall clock in milliseconds, less what it is behind."""
        return super().now_ms() - self._behind_ms
