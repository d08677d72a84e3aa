"""Newest answer of a slow reader, for pages that are requested often. One thread reads; all others wait for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from reconciler.clock import Clock

logger = logging.getLogger(__name__)

T_co = TypeVar("T_co", covariant=True)

#: An answer is shown for the interval. If reading it took long, it is shown for this multiple of the reading time. So
#: reading takes at most a twentieth of the time.
FRESH_READINGS = 20.0
#: Largest number of intervals for which an answer is shown. An older answer would hide that a dependency is back.
FRESH_INTERVALS_MAX = 3.0
#: Part of the interval that a scrape waits for a new answer.
WAIT_INTERVALS = 0.4
#: Longest time that a scrape waits, because Prometheus gives up after 10 s by default.
WAIT_SECONDS_MAX = 4.0
#: While a new answer is read, the old answer is shown for at most this time after its renewal was due.
STALE_SECONDS = 60.0


class LatestReading(Generic[T_co]):
    """Newest answer of a reader. Threads share this object. A thread reads only when a page asks."""

    def __init__(self, read: Callable[[], T_co], *, clock: Clock, interval_seconds: float) -> None:
        """`read` is called at most once per interval of a caller, and once more after outdate(). Its errors count as no
        answer."""
        self._read = read
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._answer: T_co | None = None
        self._read_at_seconds: float | None = None
        self._ended = threading.Event()
        self._is_reading = False
        #: Number of all calls of outdate(), and number of those before the reading of the shown answer began.
        self._outdated, self._outdated_before = 0, 0
        #: Seconds that the last reading took.
        self.took_seconds: float | None = None

    def get(self, interval_seconds: float | None = None) -> T_co | None:
        """Returns the answer. None: no answer is young enough, because reading fails or takes too long.

        `interval_seconds`: an interval of this caller alone.
        """
        interval = self._interval_seconds if interval_seconds is None else interval_seconds
        ended = self.begin(interval)
        if ended is None:
            return self._answer
        self._clock.wait(ended, min(WAIT_SECONDS_MAX, WAIT_INTERVALS * interval))
        with self._lock:
            return self._answer if self._age_seconds() <= self._fresh_seconds(interval) + STALE_SECONDS else None

    def begin(self, interval_seconds: float | None = None) -> threading.Event | None:
        """Starts reading if the answer is old, and does not wait. A caller that needs several answers starts all
        readings first.

        Returns the event that is set after the reading. None: the answer is young.
        """
        interval = self._interval_seconds if interval_seconds is None else interval_seconds
        with self._lock:
            if self._age_seconds() <= self._fresh_seconds(interval) and self._outdated == self._outdated_before:
                return None
            if not self._is_reading:
                told = (threading.Event(), self._outdated)
                threading.Thread(target=self._renew, args=told, name="metrics reading", daemon=True).start()
                self._is_reading, self._ended = True, told[0]
            return self._ended

    def outdate(self) -> None:
        """Marks the answer as old, because its source was changed. The next caller waits for a new answer."""
        with self._lock:
            self._outdated += 1

    def _renew(self, ended: threading.Event, outdated_before: int) -> None:
        began = self._clock.monotonic_seconds()
        answer: T_co | None = None
        try:
            answer = self._read()
        except Exception:  # the caller then gets no answer; its thread must continue in any case
            logger.exception("metrics_unread")
        now = self._clock.monotonic_seconds()
        with self._lock:
            self._answer, self._read_at_seconds, self.took_seconds = answer, now, now - began
            self._is_reading, self._outdated_before = False, outdated_before
        ended.set()

    def _age_seconds(self) -> float:
        at = self._read_at_seconds
        return float("inf") if at is None else self._clock.monotonic_seconds() - at

    def _fresh_seconds(self, interval_seconds: float) -> float:
        slow_seconds = FRESH_READINGS * (self.took_seconds or 0.0)
        return min(FRESH_INTERVALS_MAX * interval_seconds, max(interval_seconds, slow_seconds))
