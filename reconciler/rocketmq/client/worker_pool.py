"""Threads for user code. Listeners of consumers and checkers of producers never run on a thread that reads a socket."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from reconciler.clock import Clock

logger = logging.getLogger(__name__)

Task = Callable[[], object]


class WorkerPool:
    """A pool of at most `threads_max` threads. A task starts a new thread if no thread is free. Threads wait for tasks
    until close().

    Threads may share this object, because a lock protects it. `capacity` limits the waiting tasks. With None, the
    caller must limit them.
    """

    def __init__(self, name: str, clock: Clock, *, threads_max: int, capacity: int | None = None) -> None:
        self._name = name
        self._clock = clock
        self._threads_max = threads_max
        self._capacity = capacity
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        #: Counts the free threads, which found nothing to do and have got no task since.
        self._free = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._is_closing = False
        #: Number of tasks that were refused because `capacity` tasks waited already.
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Number of tasks that no thread has begun yet."""
        return self._tasks.qsize()

    @property
    def threads(self) -> int:
        """Number of threads started so far."""
        return len(self._threads)

    def submit(self, task: Task) -> bool:
        """Passes the task to a thread. Returns False if the pool is full or closing, and drops the task."""
        with self._lock:
            if self._is_closing:
                return False
            if self._capacity is not None and self._tasks.qsize() >= self._capacity:
                self.dropped += 1
                return False
            self._tasks.put(task)
            if not self._free.acquire(blocking=False) and len(self._threads) < self._threads_max:
                self._start_thread()
        return True

    def close(self, *, timeout_seconds: float) -> bool:
        """Drops tasks that no thread has begun, and waits for running tasks. Returns False if a task still runs after
        the time."""
        with self._lock:
            self._is_closing = True
            threads = list(self._threads)
            for _ in threads:
                self._tasks.put(None)
        deadline = self._clock.monotonic_seconds() + timeout_seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock.monotonic_seconds()))
        return not any(thread.is_alive() for thread in threads if thread is not threading.current_thread())

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
        try:
            thread.start()
        # the process may have no more threads: running ones take the task, or the next try does
        except RuntimeError as error:
            logger.error("threads_missing: %s gets no more threads: %s", self._name, error)  # noqa: TRY400 - says all there is
        else:
            self._threads.append(thread)

    def _run(self) -> None:
        while (task := self._next()) is not None:
            if self._is_closing:
                continue
            try:
                task()
            except BaseException:  # the thread must survive for the next task
                logger.exception("task_failed: a task of %s failed", self._name)

    def _next(self) -> Task | None:
        try:
            return self._tasks.get_nowait()
        except queue.Empty:
            self._free.release()
            return self._tasks.get()
