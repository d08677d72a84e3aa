"""Questions that are sent at once and heard later, so that many are on their way to brokers at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: A question that was sent. Called once, by the thread that asked: waits, and returns the answer.
Asked: TypeAlias = Callable[[], R]
#: Sent and not heard by one thread at the same time: so many answers lie in memory unread, at most.
ASKED_MAX = 64


def known(answer: R) -> Asked[R]:
    """The answer to what needed no question."""
    return lambda: answer


def heard(ask: Callable[[T], Asked[R]], items: Iterable[T]) -> Iterator[R]:
    """Answers in the order of the items: the next ones are asked before the first one is heard."""
    asked: deque[Asked[R]] = deque()
    for item in items:
        if len(asked) >= ASKED_MAX:
            yield asked.popleft()()
        asked.append(ask(item))
    while asked:
        yield asked.popleft()()
