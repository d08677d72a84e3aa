"""The newest answer of something slow, for pages that are asked often: one thread reads, all wait for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from reconciler.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: An answer is shown again for the interval, and for this many times as long as reading it took: reading costs a
#: twentieth of the time at most ...
FRESH_READINGS = 20.0
#: ... but never for longer than so many intervals: an answer that waited for what is away would hide that it is back.
FRESH_INTERVALS_MAX = 3.0
#: A scrape waits this part of the interval for a new answer ...
WAIT_INTERVALS = 0.4
#: ... and never for longer: Prometheus gives up after 10 s by default.
WAIT_SECONDS_MAX = 4.0
#: An older answer is shown in its place while a new one is read, up to this age after it should have been renewed.
STALE_SECONDS = 60.0


class LatestReading(Generic[T]):
    """Shared by threads. No thread reads while nobody asks."""

    def __init__(self, read: Callable[[], T], *, clock: Clock, interval_seconds: float) -> None:
        """`read` may raise: that is logged, and counts as no answer. It is called at most once an interval, and
        once more after outdate()."""
        self._read = read
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._wait_seconds = min(WAIT_SECONDS_MAX, WAIT_INTERVALS * interval_seconds)
        self._lock = threading.Lock()
        self._answer: T | None = None
        self._read_at_seconds: float | None = None
        self._ended = threading.Event()
        self._is_reading = False
        #: Calls of outdate(): all, and those that came before the reading began whose answer is shown.
        self._outdated, self._outdated_before = 0, 0
        #: How long the last reading took, in seconds.
        self.took_seconds: float | None = None

    def get(self) -> T | None:
        """The answer; None: there is none that is young enough, since reading fails or takes too long."""
        ended = self.begin()
        if ended is None:
            return self._answer
        self._clock.wait(ended, self._wait_seconds)
        with self._lock:
            return self._answer if self._age_seconds() <= self._fresh_seconds() + STALE_SECONDS else None

    def begin(self) -> threading.Event | None:
        """Has it read if the answer is old, and does not wait: who needs several answers begins all of them first.

        Returns what is set when it is read; None: the answer is young.
        """
        with self._lock:
            if self._age_seconds() <= self._fresh_seconds() and self._outdated == self._outdated_before:
                return None
            if not self._is_reading:
                self._is_reading, self._ended = True, threading.Event()
                told = (self._ended, self._outdated)
                threading.Thread(target=self._renew, args=told, name="metrics reading", daemon=True).start()
            return self._ended

    def outdate(self) -> None:
        """What is read has just been changed: who asks next waits for a new answer, as for one that is old."""
        with self._lock:
            self._outdated += 1

    def _renew(self, ended: threading.Event, outdated_before: int) -> None:
        began = self._clock.monotonic_seconds()
        answer: T | None = None
        try:
            answer = self._read()
        except Exception:  # what cannot be read is absent; the thread that asks must answer in any case
            logger.exception("metrics_unread")
        now = self._clock.monotonic_seconds()
        with self._lock:
            self._answer, self._read_at_seconds, self.took_seconds = answer, now, now - began
            self._is_reading, self._outdated_before = False, outdated_before
        ended.set()

    def _age_seconds(self) -> float:
        at = self._read_at_seconds
        return float("inf") if at is None else self._clock.monotonic_seconds() - at

    def _fresh_seconds(self) -> float:
        slow_seconds = FRESH_READINGS * (self.took_seconds or 0.0)
        return min(FRESH_INTERVALS_MAX * self._interval_seconds, max(self._interval_seconds, slow_seconds))
