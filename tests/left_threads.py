"""Threads that a test leaves behind: they answer, log and are counted while other tests run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.polling import eventually

#: Threads need this long to end on a very busy machine.
END_SECONDS = 60.0


@contextmanager
def ended_threads() -> Iterator[None]:
    """Fails at the end of the block if a thread that began within it does not end soon."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: set(threading.enumerate()) <= before, within_seconds=END_SECONDS, message="threads are left")
