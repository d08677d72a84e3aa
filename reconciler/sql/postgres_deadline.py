"""PostgreSQL connections whose statements have a deadline on this side. Needs psycopg."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from reconciler.clock import SystemClock

T = TypeVar("T")

_clock = SystemClock()


class StatementOverdue(psycopg.OperationalError):
    """No answer came in time. The connection is closed: what was sent may have been executed, or may be later."""


class BoundedConnection(psycopg.Connection[Any]):
    """Gives each message to the server a deadline for its answer, COMMIT included. `connect_within` sets it."""

    statement_seconds = 0.0

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **more: Any) -> T:
        """Does what the driver's method does. Raises StatementOverdue."""
        until_seconds = _clock.monotonic_seconds() + self.statement_seconds
        try:
            return super().wait(_until(gen, until_seconds), *arguments, **more)
        except TimeoutError as late:
            self.close()  # sends what fits into the socket's buffer, without waiting
            raise StatementOverdue(f"waited {self.statement_seconds:g} s") from late


def _until(steps: Generator[Any, Any, T], until_seconds: float) -> Generator[Any, Any, T]:
    """Yields the driver's steps, which wait a moment for the socket in between, until the deadline.

    Bytes that have arrived are read first, so that a process that was off the CPU for longer than the deadline still
    finds its answer.
    """
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            wanted = steps.send(ready)
            if _clock.monotonic_seconds() >= until_seconds:
                raise TimeoutError
    except StopIteration as end:
        answer: T = end.value
        return answer


def connect_within(engine: sa.Engine, statement_seconds: float) -> None:
    """Makes the engine open such connections from now on."""

    def connect(*arguments: Any, **parameters: Any) -> BoundedConnection:
        connection: BoundedConnection = BoundedConnection.connect(*arguments, **parameters)
        connection.statement_seconds = statement_seconds
        return connection

    # All connections of the engine come from its dialect: SQLAlchemy's, and changing_login.py's for each login.
    engine.dialect.connect = connect  # type: ignore[method-assign,assignment]  # no event lets the login pass
