"""What user code raises that is no Exception, and a process that may have no more threads: consuming goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from reconciler.clock import SystemClock
from reconciler.rocketmq.client.worker_pool import WorkerPool
from reconciler.rocketmq.consumer.listener import ConsumeStatus, call_listener
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, asked


class Killed(BaseException):
    """As gevent's Timeout is."""


EXITS = [SystemExit(1), asyncio.CancelledError(), Killed("time is up")]


@pytest.mark.parametrize("error", EXITS)
def test_an_exit_in_a_listener_has_its_messages_come_again(error: BaseException) -> None:
    def listener(messages: object) -> ConsumeStatus:
        raise error

    assert call_listener(listener, []).status is ConsumeStatus.RECONSUME_LATER


@pytest.mark.parametrize("error", EXITS)
def test_an_exit_in_a_checker_decides_nothing(error: BaseException) -> None:
    def question() -> LocalTransactionState:
        raise error

    state, reason = asked(question, "the checker")
    assert (state, type(error).__name__ in (reason or "")) == (LocalTransactionState.UNKNOWN, True)


def test_control_c_in_user_code_is_left_to_the_process() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_listener(interrupted, [])
    with pytest.raises(KeyboardInterrupt):
        asked(interrupted, "the checker")


@pytest.mark.parametrize("error", EXITS)
def test_an_exit_in_a_task_leaves_its_thread_to_the_next(error: BaseException) -> None:
    pool, ran = WorkerPool("tasks", clock=SystemClock(), threads_max=1), threading.Event()

    def fail() -> None:
        raise error

    assert pool.submit(fail)
    assert pool.submit(ran.set)
    assert ran.wait(60)
    assert pool.close(timeout_seconds=60)


def test_a_task_waits_where_no_thread_can_start_and_is_run_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, ran = WorkerPool("tasks", clock=SystemClock(), threads_max=2), [threading.Event(), threading.Event()]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        assert pool.submit(ran[0].set)
    assert (pool.threads, pool.waiting) == (0, 1)
    assert pool.submit(ran[1].set)
    assert all(event.wait(60) for event in ran)
    assert pool.close(timeout_seconds=60)
