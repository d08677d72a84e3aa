"""Counts of a producer's work, as plain numbers for the service's own metrics."""

from __future__ import annotations

import threading
from typing import Literal, TypeAlias, get_args

Count: TypeAlias = Literal[
    "halves",
    "halves_failed",
    "halves_not_safe",
    "committed",
    "rolled_back",
    "unknown",
    "left_to_check_back",
    "not_recorded",
    "not_committed",
    "ends_failed",
    "announcements_failed",
]


class Counts:
    """Counters of this process. Each counter starts at 0 and is lost with the process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = dict.fromkeys(get_args(Count), 0)

    def add(self, name: Count, number: int = 1) -> None:
        """Adds `number` to a counter."""
        with self._lock:
            self._numbers[name] += number

    def as_dict(self) -> dict[str, int]:
        """Returns every counter by its name, including those at 0."""
        with self._lock:
            return dict(self._numbers)
