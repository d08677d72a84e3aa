"""The announcement consumer: steps of all queues of all subscriptions, over a few threads.

`reconciler run` starts one, `reconciler announcements` starts more. A lease a queue keeps them from the same work. One
instance serves every subscription of a process.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence

from reconciler.announcing.port import (
    AnnouncementEvent,
    AnnouncementQueueState,
    AnnouncementSource,
    EventKind,
    StepKind,
    log_event,
)
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import Clock, SystemClock
from reconciler.errors import ReconcilerError, UsageError
from reconciler.policy.ports.announcing import AnnouncementQueue

logger = logging.getLogger(__name__)

THREADS_DEFAULT = 4
REFRESH_SECONDS = 30.0
#: Pause before the next attempt after the queues could not be listed.
REFRESH_AGAIN_SECONDS = 2.0
_LONGEST_NAP_SECONDS = 0.5
_AFTER_BUG_SECONDS = 5.0

#: A turn returns the seconds until its next run; None: never.
_Turn = Callable[[], float | None]


def process_token() -> str:
    """A new name for this process in leases, claims, outage rows and uses of the environment; people read it, too."""
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"


class AnnouncementConsumer:
    """Runs steps until stop(). Shared by threads; guarded by its lock. One thread at a time steps a queue."""

    def __init__(
        self,
        steps: Sequence[AnnouncementStep],
        source: AnnouncementSource,
        *,
        clock: Clock | None = None,
        threads: int = THREADS_DEFAULT,
        refresh_seconds: float = REFRESH_SECONDS,
        on_event: Callable[[AnnouncementEvent], None] = log_event,
    ) -> None:
        self._steps = list(steps)
        self._source = source
        self._clock = clock or SystemClock()
        self._threads_max = max(1, threads)
        self._refresh_seconds = refresh_seconds
        self._on_event = on_event
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._numbers = itertools.count()
        self._turns: list[tuple[float, int, _Turn]] = []
        self._threads: list[threading.Thread] = []
        self._known: set[tuple[int, AnnouncementQueue]] = set()
        self._is_running = False

    def start(self) -> None:
        """Starts the threads, which find the queues: no server needs to be up. Raises UsageError if it is running."""
        if self._is_running:
            raise UsageError("the announcement consumer is running already: stop it first")
        self._is_running = True
        self._stopping.clear()
        self._turns.clear()
        self._known.clear()
        for index, step in enumerate(self._steps):
            self._plan(0.0, self._refresh_turn(index, step))
        self._threads = [
            threading.Thread(target=self._work, name=f"announcements-{number}", daemon=True)
            for number in range(1, self._threads_max + 1)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, *, timeout_seconds: float = 10.0) -> bool:
        """Waits for running steps, then releases the leases. False: a step was still running after the time-out."""
        self._stopping.set()
        deadline = self._clock.monotonic_seconds() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.monotonic_seconds()))
        is_over = not any(thread.is_alive() for thread in self._threads)
        if is_over:
            for index, queue in sorted(self._known, key=lambda item: (item[0], item[1].broker, item[1].queue_id)):
                self._steps[index].release(queue)
        self._is_running = not is_over
        return is_over

    def states(self) -> Sequence[AnnouncementQueueState]:
        """Every queue, of every subscription, that had a step."""
        return [state for step in self._steps for state in step.states()]

    def settled_queues(self) -> int:
        """Queues that were read to their end, are suspended, or belong to another consumer: waiting brings nothing."""
        left = {StepKind.SUSPENDED, StepKind.NOT_MINE}
        return sum(state.behind == 0 or state.kind in left for state in self.states())

    def _refresh_turn(self, index: int, step: AnnouncementStep) -> _Turn:
        def refresh() -> float:
            try:
                found = self._source.queues(step.unique_key_topic)
            except ReconcilerError as error:
                logger.warning("queues_unknown: queues of %s cannot be listed: %s", step.unique_key_topic, error)
                return REFRESH_AGAIN_SECONDS
            for queue in found:
                with self._lock:
                    is_new = (index, queue) not in self._known
                    self._known.add((index, queue))
                if not is_new:
                    continue
                if queue.queue_id < step.shards:
                    self._plan(0.0, self._queue_turn(step, queue))
                else:
                    self._report_extra(step, queue)
            return self._refresh_seconds if found else REFRESH_AGAIN_SECONDS

        return refresh

    def _queue_turn(self, step: AnnouncementStep, queue: AnnouncementQueue) -> _Turn:
        def turn() -> float:
            return step.run_once(queue).wait_seconds

        return turn

    def _report_extra(self, step: AnnouncementStep, queue: AnnouncementQueue) -> None:
        self._on_event(
            AnnouncementEvent(
                kind=EventKind.EXTRA_QUEUE,
                subscription=step.subscription,
                queue=queue,
                detail=f"the topic has more queues than unique_key_topic.queues = {step.shards}: this one is not read",
            )
        )

    def _plan(self, wait_seconds: float, turn: _Turn) -> None:
        due = self._clock.monotonic_seconds() + wait_seconds
        with self._lock:
            heapq.heappush(self._turns, (due, next(self._numbers), turn))

    def _work(self) -> None:
        while not self._stopping.is_set():
            now = self._clock.monotonic_seconds()
            with self._lock:
                due = self._turns[0][0] if self._turns else now + _LONGEST_NAP_SECONDS
                turn = heapq.heappop(self._turns)[2] if self._turns and due <= now else None
            if turn is None:
                self._clock.wait(self._stopping, min(_LONGEST_NAP_SECONDS, due - now))
                continue
            try:
                wait_seconds = turn()
            except Exception:  # a bug in one queue must not stop the others
                logger.exception("announcement_step_failed: a step of the announcement consumer failed")
                wait_seconds = _AFTER_BUG_SECONDS
            if wait_seconds is not None:
                self._plan(wait_seconds, turn)
