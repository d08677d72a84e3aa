"""Threads on which requests to brokers wait for their answers (ports.Workers)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from reconciler.ports import OneByOne, Workers

T = TypeVar("T")
R = TypeVar("R")


class ThreadWorkers:
    """A bounded pool, shared by the threads of all rounds; whoever made it closes it."""

    def __init__(self, threads: int) -> None:
        self.width = threads
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="reconciler-key")

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Results in the order of the items; the caller's own thread waits."""
        if len(items) < 2:
            return [function(item) for item in items]
        futures: list[Future[R]] = [self._pool.submit(function, item) for item in items]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        """Waits for what runs; a thread that waits for a broker does so for its time-out at most."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def workers_of(concurrency: int) -> Workers:
    """Threads, or none for a concurrency of one."""
    return ThreadWorkers(concurrency) if concurrency > 1 else OneByOne()
