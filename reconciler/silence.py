"""Decides when a server that does not answer is asked again.

A server may stand still, because it is stopped or waits for its disk. Then its connections stay open, and the kernel
answers for it. So each question has a deadline on this side. After a missed deadline, the server counts as away for the
whole process. After a pause, one connection at a time asks the server again, until it answers. Otherwise, each thread
would wait for its own deadline. Each thread would also leave a statement behind, which the server executes when it goes
on.
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
#: Pause of a command that gives one answer to a person. Within the command, a server that did not answer in time is not
#: asked again.
NEVER = Backoff(first_seconds=inf, longest_seconds=inf)


class Silence:
    """Remembers whether one server answers, or whether one witness is of use. All threads of a process that ask the
    server share this object."""

    def __init__(
        self,
        *,
        misses: type[Exception] = DatabaseSilent,
        answers: type[Exception] | None = DatabaseAway,
        refusal: type[Exception] = DatabaseSilent,
        pauses: Backoff = PAUSES,
        clock: Clock | None = None,
    ) -> None:
        """After an error of `misses`, the server counts as away. An error of `answers` counts as an answer. Whoever
        asks while the server is away gets the error `refusal`, which says nothing about the server."""
        self._misses = misses
        self._answers = answers
        self._refusal = refusal
        self._pauses = pauses
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: Number of deadlines that the server has missed since its last answer. Deadlines of statements that ran beside
        #: the first such statement do not count.
        self._missed = 0
        self._again_at_seconds = 0.0
        #: The thread that asks a silent server. None: no thread asks the server.
        self._asker: int | None = None
        self._why = ""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Surrounds every question to the server. Raises `refusal` at once while nobody may ask the server.

        If the block raises an error of `misses`, the server counts as away. The normal end of the block counts as an
        answer, and so does an error of `answers`. Any other error says nothing about the server.
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
        """Notes that the server has answered, on whatever connection. Everybody may ask the server again."""
        if self._missed:
            with self._lock:
                self._missed, self._asker = 0, None

    def _enter(self) -> bool:
        """Returns True if the calling thread may ask a silent server again. Blocks inside a block of this thread may
        ask, too."""
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
