"""Questions of one command that wait for servers beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")

#: Questions of a command that wait for their answers at the same time.
ASKED_AT_ONCE = 16


def side_by_side(find: Callable[[A], T], asked: Iterable[A]) -> list[T]:
    """What is found of each, in their order. Raises what `find` raises of the first that fails."""
    with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="asking") as threads:
        return list(threads.map(find, asked))


def found_by_each(find: Callable[[A], T], asked: Sequence[A]) -> dict[A, T]:
    """The same, by what was asked."""
    return dict(zip(asked, side_by_side(find, asked), strict=True))
