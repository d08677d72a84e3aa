"""Servers that do not answer: what follows when a question has had its time.

A server that stands still (stopped, or waiting for its disk) keeps its connections, and the kernel answers for it. So
each question has a deadline of its own on this side. After one of them the server is away for everybody who asks it
from this process: it is asked again after a pause, by one connection at a time, until it answers. Each thread would
lose its own time otherwise, and leave a statement behind that the server executes when it goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, isinf

from reconciler.clock import Backoff, Clock, SystemClock
from reconciler.errors import DatabaseAway, DatabaseSilent

#: Pauses before a silent server is asked again.
PAUSES = Backoff(first_seconds=10.0, longest_seconds=60.0)
#: Of a command that gives one answer to a person: what did not answer in time is not asked again.
NEVER = Backoff(first_seconds=inf, longest_seconds=inf)


class Silence:
    """Whether one server answers, or one witness is of use. Shared by all threads of a process that ask it."""

    def __init__(
        self,
        *,
        misses: type[Exception] = DatabaseSilent,
        answers: type[Exception] | None = DatabaseAway,
        refusal: type[Exception] = DatabaseSilent,
        pauses: Backoff = PAUSES,
        clock: Clock | None = None,
    ) -> None:
        """`misses`: the error that makes it away; `answers`: one that is an answer; `refusal`: who asks meanwhile gets
        it, and it says nothing of the server."""
        self._misses = misses
        self._answers = answers
        self._refusal = refusal
        self._pauses = pauses
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: Deadlines that it missed since it answered last; not those of statements that ran beside the first one.
        self._missed = 0
        self._again_at_seconds = 0.0
        #: The thread that asks a silent server; None: it is asked by none.
        self._asker: int | None = None
        self._why = ""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around everything that is asked of the server. Raises `refusal` at once while it is not to be asked.

        `misses` out of the block makes it away. The end of the block is an answer, and so is an error of `answers`;
        any other error says nothing.
        """
        is_alone = self._enter()
        try:
            yield
        except BaseException as error:
            if isinstance(error, self._misses):
                self._note_missed(str(error), was_alone=is_alone)
            elif self._answers and isinstance(error, self._answers) and not isinstance(error, self._refusal):
                self.note_answered()
            else:
                self._leave(was_alone=is_alone)
            raise
        self.note_answered()

    def note_answered(self) -> None:
        """The server has answered, on whatever connection: it is asked as ever."""
        if self._missed:
            with self._lock:
                self._missed, self._asker = 0, None

    def _enter(self) -> bool:
        """Whether the caller is the one by whom a silent server is asked again; blocks within its own one pass."""
        if not self._missed:
            return False
        with self._lock:
            if not self._missed or self._asker == threading.get_ident():
                return False
            if self._asker is not None or self._clock.monotonic_seconds() < self._again_at_seconds:
                again = "not asked again" if isinf(self._again_at_seconds) else "asked again later"
                raise self._refusal(f"{self._why}; it is {again}")
            self._asker = threading.get_ident()
            return True

    def _note_missed(self, why: str, *, was_alone: bool) -> None:
        with self._lock:
            if was_alone or not self._missed:
                self._pause(why)

    def _pause(self, why: str) -> None:
        self._why = why
        self._again_at_seconds = self._clock.monotonic_seconds() + self._pauses.pause_seconds(self._missed)
        self._missed += 1
        self._asker = None

    def _leave(self, *, was_alone: bool) -> None:
        if was_alone:
            with self._lock:
                self._asker = None
