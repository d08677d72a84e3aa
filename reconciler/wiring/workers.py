"""Threads that sweep outboxes in parallel (ports.Workers)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from typing import TypeVar

from reconciler.policy.ports.workers import OneByOne

T = TypeVar("T")
R = TypeVar("R")


class _CallFailure:
    """A failed call, with the error that it raised. None: the pool was closed before the call."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class ThreadWorkers:
    """A pool of threads with a limited size. The code that makes the pool has to close it."""

    def __init__(self, threads: int) -> None:
        self.width = threads
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="reconciler-outbox")

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Returns the results in the order of the items, while the caller's thread waits."""
        if len(items) < 2:
            return [function(item) for item in items]
        outcomes: list[R | _CallFailure] = [_CallFailure()] * len(items)
        numbers = iter(range(len(items)))

        def work() -> None:
            # Each thread gets one task for all of its items, because a task costs as much as half a request.
            for number in numbers:
                try:
                    outcomes[number] = function(items[number])
                except BaseException as error:  # noqa: BLE001 - raised in the caller's thread, unchanged
                    outcomes[number] = _CallFailure(error)

        wait([self._pool.submit(work) for _ in range(min(self.width, len(items)))])
        return [_result(outcome) for outcome in outcomes]

    def close(self) -> None:
        """Waits for running calls. A call that waits for a server ends after its time-out at the latest."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _result(outcome: R | _CallFailure) -> R:
    if isinstance(outcome, _CallFailure):
        raise outcome.error or CancelledError
    return outcome


def workers_of(concurrency: int) -> ThreadWorkers | OneByOne:
    """Returns a pool of threads, or for a concurrency of one a worker without threads.

    The caller has to close either.
    """
    return ThreadWorkers(concurrency) if concurrency > 1 else OneByOne()
