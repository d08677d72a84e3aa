"""What a producer did so far, as plain numbers for the service's own metrics."""

from __future__ import annotations

import threading
from typing import Literal, TypeAlias

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
    """Counters since start. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Count, int] = {}

    def add(self, name: Count, number: int = 1) -> None:
        """So many more."""
        with self._lock:
            self._numbers[name] = self._numbers.get(name, 0) + number

    def as_dict(self) -> dict[str, int]:
        """All counters that ever moved."""
        with self._lock:
            return {str(name): number for name, number in self._numbers.items()}
