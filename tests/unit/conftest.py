"""What unit tests share."""

from __future__ import annotations

import logging
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
