"""The silence of each database of this process (reconciler/silence.py), and of look-ups that are too slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from reconciler.clock import Backoff
from reconciler.errors import StatementTooSlow
from reconciler.silence import PAUSES, Silence

#: Execution option of an engine whose statements have a deadline: its seconds.
STATEMENT_SECONDS_OPTION = "reconciler_statement_seconds"
#: Execution option of such an engine: the pauses after its silence.
PAUSES_OPTION = "reconciler_silence_pauses"
#: The share of a statement's deadline after which the server ends it: so a statement that was given up here also ends
#: there, and a slow server can be told from a silent one.
SERVER_SHARE = 0.8
#: After so many deadlines a server ends a transaction without further statements.
IDLE_DEADLINES = 3

_lock = threading.Lock()
#: Place of a database -> its silence, one for all engines of the process. With a table: only for its look-ups.
_silences: dict[tuple[str, str], Silence] = {}


def silence_of(engine: sa.Engine) -> Silence | None:
    """Returns the silence of the engine's database; None: its statements have no deadline."""
    if engine.get_execution_options().get(STATEMENT_SECONDS_OPTION) is None:
        return None
    with _lock:
        return _silences.setdefault((_place(engine), ""), Silence(pauses=_pauses_of(engine)))


def slowness_of(engine: sa.Engine, table: str) -> Silence | None:
    """Returns the silence of look-ups in one table of the engine's database: it answers too slowly to be useful for
    them, and other statements are still sent. None: its statements have no deadline."""
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
