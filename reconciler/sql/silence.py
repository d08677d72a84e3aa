"""The silences (reconciler/silence.py) of this process: one per database, and one per table whose look-ups are too
slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from reconciler.clock import Backoff
from reconciler.errors import StatementTooSlow
from reconciler.silence import PAUSES, Silence

#: Execution option of an engine: the deadline of its statements in seconds, or None.
STATEMENT_SECONDS_OPTION = "reconciler_statement_seconds"
#: Execution option of an engine: the pauses after its database was silent.
PAUSES_OPTION = "reconciler_silence_pauses"
#: The share of a statement's deadline after which the server ends the statement. So the server also ends a statement
#: that this process gives up, and a slow server differs from a silent one.
SERVER_SHARE = 0.8
#: Number of deadlines after which a server ends a transaction without further statements.
IDLE_DEADLINES = 3

_lock = threading.Lock()
#: (place of a database, table) -> silence, shared by all engines of the process. With a table, only for look-ups in it.
_silences: dict[tuple[str, str], Silence] = {}


def silence_of(engine: sa.Engine) -> Silence | None:
    """Returns the silence of the engine's database. None: the engine's statements have no deadline."""
    if engine.get_execution_options().get(STATEMENT_SECONDS_OPTION) is None:
        return None
    with _lock:
        return _silences.setdefault((_place(engine), ""), Silence(pauses=_pauses_of(engine)))


def slowness_of(engine: sa.Engine, table: str) -> Silence | None:
    """Returns the silence of look-ups in one table: the database answers them too slowly, and only they are not sent.
    None: the engine's statements have no deadline."""
    if engine.get_execution_options().get(STATEMENT_SECONDS_OPTION) is None:
        return None
    with _lock:
        silence = Silence(misses=StatementTooSlow, pauses=_pauses_of(engine))
        return _silences.setdefault((_place(engine), table), silence)


def _pauses_of(engine: sa.Engine) -> Backoff:
    pauses: Backoff = engine.get_execution_options().get(PAUSES_OPTION, PAUSES)
    return pauses


def _place(engine: sa.Engine) -> str:
    return engine.url.set(username=None, password=None).render_as_string()


@contextmanager
def asking(engine: sa.Engine) -> Iterator[None]:
    """Does Silence.asking() for the engine's database."""
    silence = silence_of(engine)
    if silence is None:
        yield
        return
    with silence.asking():
        yield
