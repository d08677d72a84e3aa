"""Doing the same for several outboxes at once, whose adapters are thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Workers(Protocol):
    """Runs a function for every item, several at a time or one after the other."""

    @property
    def width(self) -> int:
        """How many run at the same time, at most."""
        ...

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Results in the order of the items. Every call has ended when it returns or raises.

        Raises what the first item's call raised of those that failed.
        """
        ...


class OneByOne:
    """Workers without threads: in the order of the items, on the caller's thread; the first failure ends it."""

    width = 1

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Results in the order of the items."""
        return [function(item) for item in items]

    def close(self) -> None:
        """There is nothing to be closed."""
