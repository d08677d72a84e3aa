"""Clocks of the test kit. A clock shows the machine's time plus the moves of the test. SQLite's own time follows these
clocks.

Each kind of host has its own clock, so a test can move a single clock. `advance` moves all clocks together without
waiting.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Literal

from sqlalchemy import event
from sqlalchemy.pool import Pool

from reconciler.clock import SystemClock

#: The kinds of hosts. Each kind has its own clock.
Host = Literal["broker", "database", "redis", "reconciler", "service"]
_UNIX_EPOCH_JULIAN = 2440587.5
_DAY_MS = 86_400_000.0


class MovedClocks:
    """The moves of all clocks of one test. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved_seconds = 0.0
        self._stepped_seconds: dict[str, float] = {}

    def advance(self, seconds: float) -> None:
        """Moves the wall and monotonic clocks of every host."""
        with self._lock:
            self._moved_seconds += seconds

    def step(self, host: Host, seconds: float) -> None:
        """Moves the wall clock of one kind of host, forwards or backwards, as an NTP step does."""
        with self._lock:
            self._stepped_seconds[host] = self._stepped_seconds.get(host, 0.0) + seconds

    def moved_seconds(self) -> float:
        """Returns how far `advance` has moved the time."""
        with self._lock:
            return self._moved_seconds

    def wall_seconds(self, host: Host) -> float:
        """Returns how far a host's wall clock is ahead of the machine's."""
        with self._lock:
            return self._moved_seconds + self._stepped_seconds.get(host, 0.0)


class MovedClock(SystemClock):
    """The clock of one kind of host. Sleeping advances every clock. Waiting for an event takes real time."""

    def __init__(self, clocks: MovedClocks, host: Host, *, moves_intervals: bool = True) -> None:
        """`moves_intervals` is False for a part that waits for answers of other threads, because no test can hurry
        these threads. Such a part measures intervals by the machine's clock, so no request times out when a test moves
        the clock."""
        self._clocks = clocks
        self._host: Host = host
        self._moves_intervals = moves_intervals

    def now_ms(self) -> int:
        """Returns the machine's wall time plus the moves."""
        return super().now_ms() + round(self._clocks.wall_seconds(self._host) * 1000)

    def monotonic_seconds(self) -> float:
        """Returns the machine's monotonic time. If intervals move, the advances are added."""
        return super().monotonic_seconds() + (self._clocks.moved_seconds() if self._moves_intervals else 0.0)

    def sleep(self, seconds: float) -> None:
        """Advances every clock instead of waiting."""
        self._clocks.advance(max(0.0, seconds))


class SqliteTime:
    """While entered, makes `julianday('now')` return the time of a clock on SQLAlchemy's SQLite connections.

    The product asks SQLite for the time only by `julianday('now')`. A connection that is made by hand keeps the
    machine's time.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def __enter__(self) -> SqliteTime:
        event.listen(Pool, "checkout", self._give)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(Pool, "checkout", self._give)

    def _give(self, connection: object, _record: object, _proxy: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.create_function("julianday", 1, self._julian_day)

    def _julian_day(self, text: object) -> float | None:
        if text == "now":
            return self._now_ms() / _DAY_MS + _UNIX_EPOCH_JULIAN
        with closing(sqlite3.connect(":memory:")) as plain:
            found: float | None = plain.execute("SELECT julianday(?)", (text,)).fetchone()[0]
            return found
