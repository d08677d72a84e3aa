"""The announcement consumer reads all queues of all subscriptions, on a few threads.

`reconciler run` starts a consumer, and `reconciler announcements` starts further consumers. A lease per queue keeps two
consumers from doing the same work. One consumer serves every subscription of its process. Each queue has one reader. A
subscription has a turn of its own only while it reads by itself, or while the reader has handed messages out to it.
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
from dataclasses import dataclass

from reconciler.announcing.looking import LOOK_SECONDS, AnnouncementLook
from reconciler.announcing.port import AnnouncementQueueState, AnnouncementSource, StepKind
from reconciler.announcing.reader import QueueReader
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import Clock, Reminders, SystemClock
from reconciler.errors import ReconcilerError, UsageError
from reconciler.policy.ports.announcing import AnnouncementQueue

logger = logging.getLogger(__name__)

THREADS_DEFAULT = 4
REFRESH_SECONDS = 30.0
#: If the queues could not be listed, pause before the next attempt.
REFRESH_AGAIN_SECONDS = 2.0
_LONGEST_NAP_SECONDS = 0.5
_AFTER_BUG_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class _Turn:
    """A task that is repeated, by one thread at a time. The consumer's lock guards it."""

    #: Runs the task. Returns the seconds until the next run, or None if the task runs only when it is called for.
    run: Callable[[], float | None]
    #: None: no run is planned.
    due: float | None = None
    is_running: bool = False
    is_called: bool = False


def process_token() -> str:
    """Returns a new name for this process. Leases, claims, outage rows and uses of the environment have this name.
    People read it, too."""
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"


class AnnouncementConsumer:
    """Runs steps until stop(). Thread-safe by its lock. One thread at a time works on a queue."""

    def __init__(
        self,
        steps: Sequence[AnnouncementStep],
        source: AnnouncementSource,
        look: AnnouncementLook,
        *,
        clock: Clock | None = None,
        threads: int = THREADS_DEFAULT,
    ) -> None:
        """`look` is the common look of all these steps."""
        self._steps = list(steps)
        self._source = source
        self._look = look
        self._clock = clock or SystemClock()
        self._threads_max = max(1, threads)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        #: Set when a turn was planned, so that a waiting thread checks again which turn is due.
        self._news = threading.Event()
        self._numbers = itertools.count()
        self._turns: list[tuple[float, int, _Turn]] = []
        self._threads: list[threading.Thread] = []
        self._readers: dict[AnnouncementQueue, QueueReader] = {}
        #: Queues for which steps have turns.
        self._begun: set[AnnouncementQueue] = set()
        self._is_running = False

    def start(self) -> None:
        """Starts the threads. The threads find the queues later, so no server needs to answer yet. Raises UsageError if
        the consumer is running."""
        if self._is_running:
            raise UsageError("the announcement consumer is running already: stop it first")
        self._is_running = True
        self._stopping.clear()
        self._turns.clear()
        self._readers.clear()
        self._begun.clear()
        for topic in dict.fromkeys(step.unique_key_topic for step in self._steps):
            self._call(_Turn(self._refresh_turn(topic)))
        self._call(_Turn(self._look_turn))
        self._threads = [
            threading.Thread(target=self._work, name=f"announcements-{number}", daemon=True)
            for number in range(1, self._threads_max + 1)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, *, timeout_seconds: float = 10.0) -> bool:
        """Waits for running steps, then releases the leases. Returns False if a step was still running after the
        time-out."""
        self._stopping.set()
        self._news.set()
        deadline = self._clock.monotonic_seconds() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.monotonic_seconds()))
        is_over = not any(thread.is_alive() for thread in self._threads)
        if is_over:
            for step in self._steps:
                step.release_all()
            for reader in self._readers.values():
                reader.stop()
        self._is_running = not is_over
        return is_over

    def states(self) -> Sequence[AnnouncementQueueState]:
        """Returns every queue of every subscription that had a step."""
        return [state for step in self._steps for state in step.states()]

    def settled_queues(self) -> int:
        """Returns the number of queues for which nobody needs to wait. Such a queue was read to its end, is suspended,
        or belongs to another consumer."""
        left = {StepKind.SUSPENDED, StepKind.NOT_MINE}
        return sum(state.behind == 0 or state.kind in left for state in self.states())

    def _look_turn(self) -> float:
        self._look.run_once()
        return LOOK_SECONDS

    def _refresh_turn(self, topic: str) -> Callable[[], float]:
        steps = [step for step in self._steps if step.unique_key_topic == topic]
        reminders = Reminders(self._clock)

        def refresh() -> float:
            try:
                found = self._source.queues(topic)
            except ReconcilerError as error:
                if reminders.is_due((type(error), error.remedy)):
                    logger.warning("queues_unknown: queues of %s cannot be listed: %s", topic, error)
                return REFRESH_AGAIN_SECONDS
            reminders.end()
            for queue in found:
                if queue not in self._begun:  # only this turn adds the queues of its topic
                    self._begin(steps, queue)
            return REFRESH_SECONDS if found else REFRESH_AGAIN_SECONDS

        return refresh

    def _begin(self, steps: Sequence[AnnouncementStep], queue: AnnouncementQueue) -> None:
        self._begun.add(queue)
        reader = self._reader_of(queue.stored)
        for step in steps:
            if queue.queue_id < step.shards:
                self._call(self._queue_turn(step, queue, reader))
            else:
                step.leave_out(queue)

    def _reader_of(self, stored: AnnouncementQueue) -> QueueReader:
        if (known := self._readers.get(stored)) is not None:
            return known
        reading = _Turn(lambda: reader.run_once())
        reader = QueueReader(stored, source=self._source, clock=self._clock, wake=lambda: self._call(reading))
        self._readers[stored] = reader
        return reader

    def _queue_turn(self, step: AnnouncementStep, queue: AnnouncementQueue, reader: QueueReader) -> _Turn:
        def run() -> float | None:
            outcome = step.run_once(queue)
            return None if outcome.is_called_for else outcome.wait_seconds

        turn = _Turn(run)
        step.share(queue, reader, wake=lambda: self._call(turn))
        return turn

    def _call(self, turn: _Turn) -> None:
        """Makes the turn run as soon as a thread is free. If the turn is running, it runs once more."""
        with self._lock:
            if turn.is_running:
                turn.is_called = True
                return
            self._plan(turn, self._clock.monotonic_seconds())
        self._news.set()

    def _plan(self, turn: _Turn, due: float) -> None:
        if turn.due is None or due < turn.due:
            turn.due = due
            heapq.heappush(self._turns, (due, next(self._numbers), turn))

    def _next_turn(self) -> tuple[_Turn | None, float]:
        """Returns a turn that is due, or the seconds until a turn is due."""
        with self._lock:
            now = self._clock.monotonic_seconds()
            while self._turns and self._turns[0][0] <= now:
                due, _, turn = heapq.heappop(self._turns)
                if turn.due == due and not turn.is_running:  # otherwise, the turn was called for in between
                    turn.due, turn.is_running, turn.is_called = None, True, False
                    return turn, 0.0
            return None, min(_LONGEST_NAP_SECONDS, self._turns[0][0] - now) if self._turns else _LONGEST_NAP_SECONDS

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            turn, nap_seconds = self._next_turn()
            if turn is None:
                if not self._stopping.is_set():
                    self._clock.wait(self._news, nap_seconds)
                continue
            try:
                wait_seconds = turn.run()
            except Exception:  # a bug in one queue must not stop the others
                logger.exception("announcement_step_failed: a step of the announcement consumer failed")
                wait_seconds = _AFTER_BUG_SECONDS
            with self._lock:
                turn.is_running = False
                now = self._clock.monotonic_seconds()
                if turn.is_called:
                    self._plan(turn, now)
                elif wait_seconds is not None:
                    self._plan(turn, now + wait_seconds)
