"""Statements that are transactions of their own, with one round trip each, for look-ups that every message needs.

SQLAlchemy's way costs several times as much: BEGIN, COMMIT and the test of a pooled connection are round trips, and
every call builds a statement. Here the text is fixed. If a pooled connection was lost, the statement fails on it and is
run again on a new connection. So only SELECTs and idempotent UPDATEs belong here, because a statement may be executed
twice.

PostgreSQL gets each statement together with the settings of its transaction in one message (postgres_messages.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import TimeoutError as PoolTimeout

from reconciler.contract.secret import Secret
from reconciler.errors import DatabaseAway
from reconciler.sql.driver_errors import away, is_silent, shown, translate_driver_error
from reconciler.sql.engines import LOCK_TIMEOUT_SECONDS_DEFAULT, open_engine
from reconciler.sql.pools import close_engine, replace_pool
from reconciler.sql.silence import asking

if TYPE_CHECKING:
    from reconciler.sql.postgres_messages import SingleTransaction

T = TypeVar("T")

#: Marker of a parameter in a statement's text, for the drivers of open_engine().
MARKERS = {"sqlite": "?", "postgresql": "%s", "mysql": "%s", "mariadb": "%s"}


class SingleStatements:
    """Runs single statements on at most `pool_size` connections of its own. Shared by threads. Create it after a fork;
    the caller closes it.

    A statement sees all rows that were committed before it began.
    """

    def __init__(
        self,
        url: Secret,
        *,
        lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
        pool_size: int = 5,
        statement_seconds: float | None = None,
    ) -> None:
        """Takes arguments of open_engine() and raises its errors. Connects at the first use."""
        self._engine = open_engine(
            url,
            lock_timeout_seconds=lock_timeout_seconds,
            pool_size=pool_size,
            autocommit=True,
            statement_seconds=statement_seconds,
        )
        self._in_a_message: SingleTransaction | None = None
        if self._engine.dialect.name == "postgresql":
            from reconciler.sql.postgres_messages import SingleTransaction  # needs the driver

            self._in_a_message = SingleTransaction(lock_timeout_seconds, statement_seconds)

    def select_one(self, sql: str, parameters: Sequence[object]) -> tuple[Any, ...] | None:
        """Returns the only row, or None. Raises DatabaseAway, ConfigurationError for a missing table, and other errors
        of the driver."""
        return self._run(sql, parameters, _first_row)

    def update(self, sql: str, parameters: Sequence[object]) -> int:
        """Returns the number of rows that the statement matched. Raises what select_one() raises."""
        return self._run(sql, parameters, _row_count)

    def close(self) -> None:
        """Closes all connections, each as soon as it is idle. A later statement connects again."""
        close_engine(self._engine)

    def _run(self, sql: str, parameters: Sequence[object], result: Callable[[Any], T]) -> T:
        try:
            with asking(self._engine):
                answer = self._try(sql, parameters, result)
                if isinstance(answer, _Lost) and not is_silent(answer.error):
                    replace_pool(self._engine)
                    answer = self._try(sql, parameters, result)
                if isinstance(answer, _Lost):
                    raise away(answer.error, self._engine) from answer.error
                return answer
        except PoolTimeout as error:
            raise DatabaseAway(f"no free connection to {shown(self._engine)}") from error

    def _try(self, sql: str, parameters: Sequence[object], result: Callable[[Any], T]) -> T | _Lost:
        try:
            connection = self._engine.raw_connection()
        except PoolTimeout:
            raise
        except Exception as error:
            raise translate_driver_error(error, self._engine) or error from error
        try:
            if self._in_a_message is not None:
                return result(self._in_a_message.execute(connection.dbapi_connection, sql, parameters))
            with closing(connection.cursor()) as cursor:
                cursor.execute(sql, parameters)
                return result(cursor)
        except Exception as error:
            is_lost = self._engine.dialect.is_disconnect(error, connection.dbapi_connection, None)  # type: ignore[arg-type]  # it asks for the kind itself
            connection.invalidate(error)
            if is_lost:
                return _Lost(error)
            raise translate_driver_error(error, self._engine) or error from error
        except BaseException as interruption:
            connection.invalidate(interruption)  # the statement's answer may still arrive on it
            raise
        finally:
            connection.close()


class _Lost:
    """The error of a statement whose connection broke."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _first_row(cursor: Any) -> tuple[Any, ...] | None:
    row = cursor.fetchone()
    return None if row is None else tuple(row)


def _row_count(cursor: Any) -> int:
    return int(cursor.rowcount)
