"""Waiting for something to become true, with a deadline: the only way a test synchronises with a process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.services.requirements import in_ci

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.1

#: A machine of CI may be shared and slow; waiting longer costs nothing where nothing is broken.
PATIENCE = 3.0 if in_ci() else 1.0


def eventually(predicate: Callable[[], T | None], *, within_seconds: float, message: str = "") -> T:
    """Calls the predicate until it returns something true, and returns that. Three times as patient in CI.

    An AssertionError inside the predicate counts as "not yet", and so does a LookupError: a row, a line or an answer
    is looked at that is not there yet. The last one is the cause of the final failure. Any other exception is raised
    at once.
    """
    deadline = time.monotonic() + within_seconds * PATIENCE
    pause = FIRST_PAUSE_SECONDS
    while True:
        not_yet: AssertionError | LookupError | None = None
        try:
            value = predicate()
        except (AssertionError, LookupError) as error:
            not_yet = error
        else:
            if value:
                return value
        if time.monotonic() >= deadline:
            what = message or getattr(predicate, "__name__", "the condition")
            raise AssertionError(f"not within {within_seconds * PATIENCE:g} s: {what}") from not_yet
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
