"""Threads that repeat something beside a test until they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

#: Goes on until the event is set.
Loop = Callable[[threading.Event], None]


class Loops:
    """Runs each loop in a thread of its own while the block lasts, or until `stop`."""

    def __init__(self, *loops: Loop, name: str) -> None:
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=loop, args=(self._stop,), name=f"{name}-{number}")
            for number, loop in enumerate(loops)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when all of them have ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
