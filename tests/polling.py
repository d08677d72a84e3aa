"""Waiting for something to become true, with a deadline: the only way a test synchronises with a process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.1


def eventually(predicate: Callable[[], T | None], *, within_seconds: float, message: str = "") -> T:
    """Calls the predicate until it returns something true, and returns that.

    An AssertionError inside the predicate counts as "not yet"; the last one is the cause of the final
    failure. Any other exception is raised at once.
    """
    deadline = time.monotonic() + within_seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        not_yet: AssertionError | None = None
        try:
            value = predicate()
        except AssertionError as error:
            not_yet = error
        else:
            if value:
                return value
        if time.monotonic() >= deadline:
            what = message or getattr(predicate, "__name__", "the condition")
            raise AssertionError(f"not within {within_seconds} s: {what}") from not_yet
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
