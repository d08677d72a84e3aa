"""The step thread: a step that fails, comes late or never ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from reconciler.clock import ManualClock, SystemClock
from reconciler.rocketmq.client.step_thread import StepThread
from tests.polling import eventually


@pytest.fixture
def steps() -> Iterator[StepThread]:
    thread = StepThread("steps", SystemClock())
    thread.start()
    yield thread
    thread.close()


def test_a_step_that_raises_does_not_end_the_thread(steps: StepThread, caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Event()
    steps.soon(lambda: 1 // 0)
    steps.soon(ran.set)
    assert ran.wait(60)
    assert "a step of steps failed" in caplog.text


def test_delayed_steps_run_in_the_order_of_their_times() -> None:
    clock, order = ManualClock(), list[str]()
    steps = StepThread("steps", clock)
    steps.later(0.05, lambda: order.append("second"))
    steps.later(0.01, lambda: order.append("first"))
    steps.soon(lambda: order.append("now"))
    steps.start()
    try:
        eventually(lambda: order == ["now", "first", "second"], within_seconds=60)
    finally:
        steps.close()


def test_a_periodic_step_goes_on_after_a_failure(steps: StepThread) -> None:
    runs: list[int] = []

    def step() -> None:
        runs.append(1)
        raise ValueError("this time")

    steps.every(0.005, step)
    eventually(lambda: len(runs) >= 3, within_seconds=60)


def test_closing_drops_what_has_not_begun_and_waits_for_the_step_in_hand(steps: StepThread) -> None:
    begun, go_on, ran = threading.Event(), threading.Event(), []

    def long_step() -> None:
        begun.set()
        go_on.wait(60)
        ran.append("long")

    steps.soon(long_step)
    steps.soon(lambda: ran.append("dropped"))
    assert begun.wait(60)
    assert steps.close(timeout_seconds=0.01) is False
    go_on.set()
    assert steps.close() is True
    assert ran == ["long"]


def test_a_thread_that_was_never_started_closes() -> None:
    assert StepThread("steps", SystemClock()).close() is True
