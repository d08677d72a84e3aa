"""Workers of one process: several requests to brokers at once, as its threads send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.simulation.kernel import Process

T = TypeVar("T")
R = TypeVar("R")

#: Between two looks of the caller's thread at those that work for it.
POLL_SECONDS = 0.002


class ProcessWorkers:
    """reconciler.policy.ports.workers.Workers; the outcome of reconciler.wiring.workers.ThreadWorkers."""

    def __init__(self, process: Process, width: int) -> None:
        self._process = process
        self.width = width

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Results in the order of the items; every call has ended."""
        if len(items) < 2:
            return [function(item) for item in items]
        results: dict[int, R] = {}
        errors: dict[int, Exception] = {}
        numbers = iter(range(len(items)))

        def work() -> None:
            for number in numbers:
                try:
                    results[number] = function(items[number])
                except Exception as error:
                    errors[number] = error

        for _ in range(min(self.width, len(items))):
            self._process.spawn(work)
        while len(results) + len(errors) < len(items):
            self._process.sleep(POLL_SECONDS)
        for number in sorted(errors):
            raise errors[number]
        return [results[number] for number in range(len(items))]


def workers_of(process: Process, width: int) -> ProcessWorkers | None:
    """None: one request after the other."""
    return ProcessWorkers(process, width) if width > 1 else None
