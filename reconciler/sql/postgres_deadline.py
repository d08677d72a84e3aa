"""PostgreSQL connections on which the client gives up a statement after a deadline. Needs psycopg."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from reconciler.clock import SystemClock

T = TypeVar("T")

_clock = SystemClock()


class StatementOverdue(psycopg.OperationalError):
    """No answer came in time, and the connection was closed. The server may have executed the statement, or may execute
    it later."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection with a deadline for the answer to each message, COMMIT included."""

    statement_seconds = 0.0

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **more: Any) -> T:
        """Does what the driver's method does. Raises StatementOverdue."""
        until_seconds = _clock.monotonic_seconds() + self.statement_seconds
        try:
            return super().wait(_until(gen, until_seconds), *arguments, **more)
        except TimeoutError as late:
            self.close()  # sends a last message without waiting
            raise StatementOverdue(f"waited {self.statement_seconds:g} s") from late


def _until(steps: Generator[Any, Any, T], until_seconds: float) -> Generator[Any, Any, T]:
    """Yields the driver's steps until the deadline. Between two steps the driver waits a moment for the socket.

    Bytes that have arrived are read before the deadline is checked. So a process that was off the CPU for too long
    still finds its answer.
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
    """Makes each new connection of the engine a BoundedConnection."""

    def connect(*arguments: Any, **parameters: Any) -> BoundedConnection:
        connection: BoundedConnection = BoundedConnection.connect(*arguments, **parameters)
        connection.statement_seconds = statement_seconds
        return connection

    # SQLAlchemy and changing_login.py both open the engine's connections by dialect.connect().
    engine.dialect.connect = connect  # type: ignore[method-assign,assignment]  # no event lets the login pass
