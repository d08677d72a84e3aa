"""Questions that are sent at once and answered later. So many questions to brokers can be under way at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: A question that was sent. The thread that asked calls it once; the call waits and returns the answer.
Asked: TypeAlias = Callable[[], R]
#: Maximum number of questions of one thread that are under way, and so the most unread answers in memory.
ASKED_MAX = 64


def known(answer: R) -> Asked[R]:
    """Returns a known answer in the form of a question that was sent."""
    return lambda: answer


def heard(ask: Callable[[T], Asked[R]], items: Iterable[T]) -> Iterator[R]:
    """Yields answers in the order of the items. Further questions are sent before the first answer is awaited."""
    asked: deque[Asked[R]] = deque()
    for item in items:
        if len(asked) >= ASKED_MAX:
            yield asked.popleft()()
        asked.append(ask(item))
    while asked:
        yield asked.popleft()()
