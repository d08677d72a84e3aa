"""Runs a handler's effect at most once: inbox row and business writes in one transaction.

The order is fixed: begin, inbox row, handler, check, completion of the row, commit. This module changes nothing outside
the database. Afterwards, the handler wrapper records and acknowledges the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from inspect import iscoroutinefunction
from typing import Any, Protocol, runtime_checkable

import sqlalchemy as sa

from checkback_consumers.completion import Completion, KnownCompletions
from checkback_consumers.inbox import ENDED, InboxAnswer, InboxEntry, complete_row, enter_inbox
from checkback_consumers.sql_session import SqlSession
from reconciler.errors import InvalidValue, UsageError
from reconciler.sql.driver_errors import driver_error, lacks_schema
from reconciler.sql.rights import is_refused

#: A function that runs the business writes on the connection, and raises to roll back. If the handler is a coroutine,
#: the function returns the coroutine.
Effect = Callable[[Any], object]

#: The process has only one such object, because a service with several databases makes a new inbox for each message.
_COMPLETIONS = KnownCompletions()


@runtime_checkable
class Inbox(Protocol):
    """A place that remembers which messages had their effect, so that each effect happens at most once."""

    @property
    def is_weaker(self) -> bool:
        """True: a crash or a loss of memory can double the effect. Every report says that the inbox is weaker."""
        ...

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        """Runs the effect unless the entry is a duplicate. When the call returns, the outcome is durable."""
        ...


@runtime_checkable
class BatchInbox(Inbox, Protocol):
    """An inbox that can take several messages at once."""

    def apply_together(self, work: Iterable[tuple[InboxEntry, Effect]]) -> list[InboxAnswer]:
        """Calls `apply_once` for each message in order. When the call returns, all effects are durable. When the call
        raises, no effect is durable."""
        ...


class SqlInbox:
    """The inbox in the service's own database.

    `database` is a SQLAlchemy Engine, a sessionmaker, or any callable that returns a Session, a Connection or a DB-API
    connection for one message. The inbox closes each connection afterwards. Threads of the consumer can share the
    inbox: every call takes its own connection. The inbox refuses a DB-API connection in autocommit, even if its
    transaction was begun by hand. SQLite needs WAL and BEGIN IMMEDIATE, which reconciler.sql.engines.open_engine sets.
    Otherwise, concurrent handlers starve each other.
    """

    is_weaker = False

    def __init__(self, database: sa.Engine | Callable[[], Any]) -> None:
        """Raises InvalidValue if the database gives no connection, or if its connections have to be awaited."""
        require_database(database)
        self._database = database

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        """Runs one transaction. Any exception rolls the transaction back and passes through. Raises UsageError if the
        handler ended the transaction."""
        return self.apply_together([(entry, effect)])[0]

    def apply_together(self, work: Iterable[tuple[InboxEntry, Effect]]) -> list[InboxAnswer]:
        """Applies several messages in their order, in one transaction. Either all messages have their effect, or none
        has."""
        with self._transaction() as connection:
            return apply_in(SqlSession(connection), connection, work, database=self._database)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        if isinstance(self._database, sa.Engine):
            with self._database.connect() as connection, connection.begin():
                yield connection
            return
        connection = self._database()
        try:
            yield connection
            connection.commit()
        except BaseException:
            with suppress(Exception):  # the first error is shown; closing rolls back, too
                connection.rollback()
            raise
        finally:
            with suppress(Exception):
                connection.close()


def apply_in(
    session: SqlSession, connection: Any, work: Iterable[tuple[InboxEntry, Effect]], *, database: Any
) -> list[InboxAnswer]:
    """Writes rows and effects in the transaction of the connection. The caller then commits this transaction.
    `database`: the origin of the connection."""
    session.require_guarded()
    completion = _COMPLETIONS.of(database, session)
    try:
        done = [_enter_and_run(session, connection, entry, effect, completion) for entry, effect in work]
        complete_row(session)
    except Exception as error:
        refused = is_refused(error) or lacks_schema(str(driver_error(error)))
        if refused or isinstance(error, UsageError):
            _COMPLETIONS.forget(database, session, is_refused=refused)
        raise
    if not session.is_marked():
        raise UsageError(ENDED)
    return done


def is_asynchronous(database: object) -> bool:
    """Returns True if the connections of the database are known to be asynchronous."""
    kinds = (*type(database).__mro__, *getattr(getattr(database, "class_", None), "__mro__", ()))
    return iscoroutinefunction(database) or any(kind.__name__.lower().startswith("async") for kind in kinds)


def require_database(database: object) -> None:
    """Raises InvalidValue if `database` is neither an Engine nor a callable for a connection, or if `database` is
    asynchronous."""
    if is_asynchronous(database):
        remedy = "it is asynchronous: write the handler as `async def`, or give a synchronous Engine or sessionmaker"
    elif not isinstance(database, sa.Engine) and not callable(database):
        remedy = "give an Engine, a sessionmaker, or a function that returns a connection"
    else:
        return
    raise InvalidValue("database", getattr(database, "__qualname__", type(database).__qualname__), remedy)


def _enter_and_run(
    session: SqlSession, connection: Any, entry: InboxEntry, effect: Effect, completion: Completion
) -> InboxAnswer:
    entered = enter_inbox(session, entry, completion)
    if entered is InboxAnswer.NEW:
        session.mark()
        effect(connection)
        # PostgreSQL turns COMMIT of a failed transaction into ROLLBACK without an error. Without this check, a message
        # whose handler swallowed a database error would be acknowledged without its effect.
        if not session.is_sound():
            raise UsageError(ENDED)
        # The row is completed for each message of a batch, because the handler of a later message may commit the rows
        # of earlier messages. On PostgreSQL, the statement that writes the next row also completes this row.
        if session.dialect != "postgresql":
            complete_row(session)
    return entered
