"""The pool for user code: bounded, and never ended by what user code does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from reconciler.clock import SystemClock
from reconciler.rocketmq.client.worker_pool import WorkerPool
from tests.polling import eventually


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def pool(*, threads: int = 2, capacity: int | None = None) -> WorkerPool:
    return WorkerPool("pool", SystemClock(), threads_max=threads, capacity=capacity)


def test_tasks_above_the_capacity_are_dropped_and_counted(gate: threading.Event) -> None:
    workers = pool(threads=1, capacity=2)
    assert workers.submit(lambda: gate.wait(60))
    eventually(lambda: workers.waiting == 0, within_seconds=60)
    assert [workers.submit(lambda: None) for _ in range(5)] == [True, True, False, False, False]
    assert workers.dropped == 3
    gate.set()
    assert workers.close(timeout_seconds=60)


def test_threads_grow_with_the_backlog_up_to_the_maximum(gate: threading.Event) -> None:
    workers = pool(threads=3)
    for _ in range(20):
        workers.submit(lambda: gate.wait(60))
    assert workers.threads == 3
    gate.set()
    eventually(lambda: workers.waiting == 0, within_seconds=60)
    assert workers.close(timeout_seconds=60)


def test_a_task_that_raises_does_not_cost_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    workers = pool(threads=1)
    ran = threading.Event()
    workers.submit(lambda: 1 // 0)
    workers.submit(ran.set)
    assert ran.wait(60)
    assert workers.close(timeout_seconds=60)
    assert "a task of pool failed" in caplog.text


def test_closing_says_so_when_a_task_outlives_the_bound(gate: threading.Event) -> None:
    workers = pool(threads=1)
    workers.submit(lambda: gate.wait(60))
    eventually(lambda: workers.waiting == 0, within_seconds=60)
    assert workers.close(timeout_seconds=0.01) is False
    gate.set()
    assert workers.close(timeout_seconds=60) is True
    assert workers.submit(lambda: None) is False


def test_tasks_that_wait_when_it_is_closed_are_not_run(gate: threading.Event) -> None:
    """The offsets are stored then: who runs a listener behind that has its messages come again."""
    pool, ran = WorkerPool("p", SystemClock(), threads_max=1), list[str]()
    begun = threading.Event()

    def first() -> None:
        begun.set()
        gate.wait(60)
        ran.append("first")

    assert pool.submit(first)
    assert begun.wait(60)
    assert pool.submit(lambda: ran.append("second"))
    assert not pool.close(timeout_seconds=0.0)
    assert not pool.submit(lambda: ran.append("third"))
    gate.set()
    assert pool.close(timeout_seconds=60)
    assert ran == ["first"]


def test_a_task_never_waits_behind_a_busy_thread_while_another_may_start(gate: threading.Event) -> None:
    workers = pool(threads=2)
    begun = threading.Event()

    def busy() -> None:
        begun.set()
        gate.wait(60)

    workers.submit(busy)
    assert begun.wait(60)
    ran = threading.Event()
    workers.submit(ran.set)
    assert ran.wait(60)
    gate.set()
    assert workers.close(timeout_seconds=60)
