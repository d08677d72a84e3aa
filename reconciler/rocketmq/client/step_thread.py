"""One thread that runs short steps, now or later. A push consumer with this thread needs no thread for each queue."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable

from reconciler.clock import Clock

logger = logging.getLogger(__name__)

Step = Callable[[], object]

_IDLE_SECONDS = 3_600.0


class StepThread:
    """Runs steps one after the other on its own thread. A step must not block for longer than a request.

    Threads may share this object, because a lock protects it. An error of a step is logged, and the next steps run.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._ready: deque[Step] = deque()
        self._later: list[tuple[float, int, Step]] = []
        self._numbers = itertools.count()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def soon(self, step: Step) -> None:
        """Runs the step after the waiting steps. A closed thread runs no step."""
        with self._lock:
            if not self._is_closing:
                self._ready.append(step)
        self._woken.set()

    def later(self, delay_seconds: float, step: Step) -> None:
        """Runs the step when the delay has passed. A closed thread runs no step."""
        due = self._clock.monotonic_seconds() + delay_seconds
        with self._lock:
            if not self._is_closing:
                heapq.heappush(self._later, (due, next(self._numbers), step))
        self._woken.set()

    def every(self, interval_seconds: float, step: Step) -> None:
        """Repeats the step. The interval counts from the end of the last run."""

        def run_and_plan() -> None:
            try:
                step()
            finally:
                self.later(interval_seconds, run_and_plan)

        self.later(interval_seconds, run_and_plan)

    def close(self, *, timeout_seconds: float = 10.0) -> bool:
        """Drops steps that have not begun, and waits for the current step. Returns False if the current step does not
        end in time."""
        with self._lock:
            self._is_closing = True
            self._ready.clear()
            self._later.clear()
        self._woken.set()
        if not self._thread.ident or threading.current_thread() is self._thread:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            step, wait_seconds = self._next()
            if step is not None:
                try:
                    step()
                except Exception:  # a step must never end the thread, because everything would silently stop
                    logger.exception("step_failed: a step of %s failed", self._thread.name)
            elif wait_seconds is None:
                return
            else:
                self._clock.wait(self._woken, wait_seconds)

    def _next(self) -> tuple[Step | None, float | None]:
        """Returns a step to run, or the seconds to wait. Returns (None, None) after close()."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            while self._later and self._later[0][0] <= now:
                self._ready.append(heapq.heappop(self._later)[2])
            if self._ready:
                return self._ready.popleft(), 0.0
            if self._is_closing:
                return None, None
            self._woken.clear()
            return None, self._later[0][0] - now if self._later else _IDLE_SECONDS
