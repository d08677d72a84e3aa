"""Asks the questions of one command in parallel, because questions wait for servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")

#: Maximum number of questions of a command that wait for answers at the same time.
ASKED_AT_ONCE = 16


def side_by_side(find: Callable[[A], T], asked: Iterable[A]) -> list[T]:
    """Returns the results of `find` in the order of `asked`. Raises the error of the first call that fails."""
    with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="asking") as threads:
        return list(threads.map(find, asked))


def found_by_each(find: Callable[[A], T], asked: Sequence[A]) -> dict[A, T]:
    """Returns argument -> result of `find`. Raises the error of the first call that fails."""
    return dict(zip(asked, side_by_side(find, asked), strict=True))
