"""Runs one function for several outboxes at the same time. Threads may share the outboxes' adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Workers(Protocol):
    """Runs a function for every item: several items in parallel, or one after the other."""

    @property
    def width(self) -> int:
        """Returns the most calls that run at the same time."""
        ...

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Returns the results in the order of the items. Every call has ended when this returns or raises.

        If calls failed, raises the error of the first item whose call failed.
        """
        ...


class OneByOne:
    """Workers without threads. The items run in order on the caller's thread; the first failure ends the run."""

    width = 1

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Returns the results in the order of the items."""
        return [function(item) for item in items]

    def close(self) -> None:
        """Does nothing, because there is nothing to close."""
