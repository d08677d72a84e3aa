"""What unit tests share."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _the_test_runs_own_logging_comes_back() -> Iterator[None]:
    """A command that runs in this process logs to the standard error of its test, which is closed after it."""
    root, apscheduler = logging.getLogger(), logging.getLogger("apscheduler")
    handlers, level, apscheduler_level = root.handlers[:], root.level, apscheduler.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    apscheduler.setLevel(apscheduler_level)


@pytest.fixture(autouse=True)
def _signals_come_back() -> Iterator[None]:
    """A command that runs in this process takes signals over, until the process ends as a rule."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    left = signal.set_wakeup_fd(descriptor)
    if left != descriptor:
        os.close(left)  # the thread that reads the signals ends
