"""Runs a handler's effect at most once: inbox row and business writes in one transaction.

The order is fixed: begin, inbox row, handler, check, completion of the row, commit. Nothing outside the database
happens in here; the handler wrapper records and acknowledges afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from inspect import iscoroutinefunction
from typing import Any, Protocol, runtime_checkable

import sqlalchemy as sa

from checkback_consumers.completion import Completion, KnownCompletions
from checkback_consumers.inbox import ENDED, InboxAnswer, InboxEntry, complete_row, enter_inbox
from checkback_consumers.sql_session import SqlSession
from reconciler.errors import InvalidValue, UsageError
from reconciler.sql.engines import driver_error, lacks_schema
from reconciler.sql.rights import is_refused

logger = logging.getLogger(__name__)

#: Runs the business writes on the connection; raises to roll back. For a coroutine handler, it returns the coroutine.
Effect = Callable[[Any], object]

#: One for this process, because a service with several databases makes a new inbox for each message.
_COMPLETIONS = KnownCompletions()


@runtime_checkable
class Inbox(Protocol):
    """A way to have each effect at most once."""

    @property
    def is_weaker(self) -> bool:
        """True: a crash or lost memory can double the effect; every report says so."""
        ...

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        """Runs the effect unless the entry is a duplicate; when it returns, the outcome is durable."""
        ...


@runtime_checkable
class BatchInbox(Inbox, Protocol):
    """An inbox that can take several messages at once."""

    def apply_together(self, work: Iterable[tuple[InboxEntry, Effect]]) -> list[InboxAnswer]:
        """Calls `apply_once` for each message in order. All effects are durable when it returns, and none if it
        raises."""
        ...


class SqlInbox:
    """The inbox in the service's own database.

    `database` is a SQLAlchemy Engine, a sessionmaker, or any callable that returns a Session, a Connection or a
    DB-API connection for one message; each is closed afterwards. Shared by the consumer's threads, because every call
    takes its own connection. It refuses a DB-API connection in autocommit, also one whose transaction was begun by
    hand. SQLite: use WAL and BEGIN IMMEDIATE (reconciler.sql.engines.open_engine does), or concurrent handlers starve
    each other.
    """

    is_weaker = False

    def __init__(self, database: sa.Engine | Callable[[], Any]) -> None:
        """Raises InvalidValue for a database that gives no connection, or one that has to be awaited."""
        require_database(database)
        self._database = database

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        """Runs one transaction. Any exception rolls it back and passes through; so does an error because the handler
        ended the transaction."""
        return self.apply_together([(entry, effect)])[0]

    def apply_together(self, work: Iterable[tuple[InboxEntry, Effect]]) -> list[InboxAnswer]:
        """Does apply_once() for several messages in their order, in one transaction: all have their effect, or none."""
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
            with suppress(Exception):  # the first error is the one to show; closing rolls back too
                connection.rollback()
            raise
        finally:
            with suppress(Exception):
                connection.close()


def apply_in(
    session: SqlSession, connection: Any, work: Iterable[tuple[InboxEntry, Effect]], *, database: Any
) -> list[InboxAnswer]:
    """Writes rows and effects in the transaction of a connection of `database`, which the caller then commits."""
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
    """Returns True if what the database gives has to be awaited, as far as that is known beforehand."""
    kinds = (*type(database).__mro__, *getattr(getattr(database, "class_", None), "__mro__", ()))
    return iscoroutinefunction(database) or any(kind.__name__.lower().startswith("async") for kind in kinds)


def require_database(database: object) -> None:
    """Raises InvalidValue for anything that is neither an Engine nor a callable for a connection, and for anything
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
        # PostgreSQL turns COMMIT of a failed transaction into ROLLBACK without an error: a handler that swallowed a
        # database error would be acknowledged without its effect.
        if not session.is_sound():
            raise UsageError(ENDED)
        # This is done for each message of a batch, because the handler of a later message may commit the rows of
        # earlier ones. On PostgreSQL the statement before that handler also completes this row.
        if session.dialect != "postgresql":
            complete_row(session)
    return entered
