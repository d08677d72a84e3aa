"""Databases that do not answer: what follows when a statement has had its time.

A server that stands still (stopped, or waiting for its disk) keeps its connections, and the kernel answers for it. So
each statement has a deadline of its own on this side. After one of them the database is away for everybody who asks it
from this process: it is asked again after a pause, by one connection at a time, until it answers. Each thread would
lose its own time otherwise, and leave a statement behind that the server executes when it goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from reconciler.clock import Backoff, Clock, SystemClock
from reconciler.errors import DatabaseAway, DatabaseSilent, StatementTooSlow

#: Pauses before a silent database is asked again.
PAUSES = Backoff(first_seconds=10.0, longest_seconds=60.0)
#: Execution option of an engine whose statements have a deadline: its number of seconds.
STATEMENT_SECONDS_OPTION = "reconciler_statement_seconds"


class Silence:
    """Whether one database answers, or one witness is of use. Shared by all threads of a process that ask it."""

    def __init__(
        self, *, misses: type[DatabaseAway] = DatabaseSilent, pauses: Backoff = PAUSES, clock: Clock | None = None
    ) -> None:
        """`misses`: the error that makes it away."""
        self._misses = misses
        self._pauses = pauses
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: Deadlines that it missed since it answered last; not those of statements that ran beside the first one.
        self._missed = 0
        self._again_at_seconds = 0.0
        #: The thread that asks a silent database; None: it is asked by none.
        self._asker: int | None = None
        self._why = ""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around everything that is asked of the database. Raises DatabaseSilent at once while it is not to be asked.

        `misses` out of the block makes it away. Any other end is an answer, a refusal too; an error that is no
        database's says nothing, and no more does DatabaseSilent where another error is a miss.
        """
        is_alone = self._enter()
        try:
            yield
        except self._misses as error:
            self._note_missed(str(error), was_alone=is_alone)
            raise
        except DatabaseSilent:
            self._leave(was_alone=is_alone)
            raise
        except DatabaseAway:
            self.note_answered()
            raise
        except BaseException:
            self._leave(was_alone=is_alone)
            raise
        self.note_answered()

    def note_answered(self) -> None:
        """The database has answered, on whatever connection: it is asked as ever."""
        if self._missed:
            with self._lock:
                self._missed, self._asker = 0, None

    def _enter(self) -> bool:
        """Whether the caller is the one by whom a silent database is asked again; blocks within its own one pass."""
        if not self._missed:
            return False
        with self._lock:
            if not self._missed or self._asker == threading.get_ident():
                return False
            if self._asker is not None or self._clock.monotonic_seconds() < self._again_at_seconds:
                raise DatabaseSilent(f"{self._why}; it is asked again later")
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


_lock = threading.Lock()
#: Place of a database -> its silence: one for all engines of the process. With a table: of its look-ups alone.
_silences: dict[tuple[str, str], Silence] = {}


def silence_of(engine: sa.Engine) -> Silence | None:
    """That of the engine's database; None: its statements have no deadline."""
    if engine.get_execution_options().get(STATEMENT_SECONDS_OPTION) is None:
        return None
    with _lock:
        return _silences.setdefault((_place(engine), ""), Silence())


def slowness_of(engine: sa.Engine, table: str) -> Silence | None:
    """That of the look-ups in one table of the engine's database: it answers, but too slowly to be of use for them, and
    nobody else is kept from it. None: its statements have no deadline."""
    if engine.get_execution_options().get(STATEMENT_SECONDS_OPTION) is None:
        return None
    with _lock:
        return _silences.setdefault((_place(engine), table), Silence(misses=StatementTooSlow))


def _place(engine: sa.Engine) -> str:
    return engine.url.set(username=None, password=None).render_as_string()


@contextmanager
def asking(engine: sa.Engine) -> Iterator[None]:
    """Silence.asking() of the engine's database."""
    silence = silence_of(engine)
    if silence is None:
        yield
        return
    with silence.asking():
        yield
