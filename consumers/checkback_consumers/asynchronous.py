"""Handlers that are coroutines. Inbox row, effect and commit happen in the loop in which the handler was opened.

The thread that brings a message waits for the loop. A message comes on a thread of the client or of a replay worker.
Heartbeats, offsets, locks of queues and the recorder never wait for a loop, so a blocked loop delays only messages. The
waiting threads determine batches and order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import types
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future, wait
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from inspect import isawaitable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from checkback_consumers.effect import Effect, Inbox, apply_in, is_asynchronous
from checkback_consumers.errors import InboxNotReached
from checkback_consumers.inbox import ENDED, InboxAnswer, InboxEntry
from checkback_consumers.sql_session import SqlSession
from reconciler.contract.extras import install
from reconciler.errors import InvalidValue, MissingDependency, TransientError, UsageError
from reconciler.sql.awaited_connection import AwaitedConnection, engine_of, is_async_engine, on_connection, wait_for
from reconciler.sql.callers_connection import Parameters, UnsafeConnection
from reconciler.sql.driver_errors import driver_error, sqlstate_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

RUNNING_MAX_DEFAULT = 20
#: How long closing a handler waits for the calls that it has cancelled. A rollback may take this long.
CANCEL_SECONDS = 15.0
#: How often a waiting thread checks whether the loop is closed.
LOOP_LOOK_SECONDS = 1.0
_FAILED_TRANSACTION = "25P02"
#: Pool of connections -> the loop that used the pool last, and the places in this loop. Handlers that share a pool
#: share the places.
_PLACES: WeakKeyDictionary[Any, tuple[weakref.ref[asyncio.AbstractEventLoop], asyncio.Semaphore]] = WeakKeyDictionary()


@dataclass(slots=True)
class _Opened:
    """The state of an open handler. Only the loop touches it, except for the fields that run() reads."""

    loop: asyncio.AbstractEventLoop
    process: int
    places: asyncio.Semaphore
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    is_closed: bool = False


class HandlersLoop:
    """The loop of one handler, and the tasks that run the handler's calls in this loop. Thread-safe.

    The object belongs to the loop in which it was opened, and refuses another loop or a forked process.
    """

    def __init__(self, *, running_max: int, database: object = None, is_of_pool: bool = False) -> None:
        """`database` is the handler's database. With `is_of_pool`, all handlers that use the engine's pool share the
        places."""
        self._running_max = running_max
        self._is_of_pool = is_of_pool
        self._database = database
        self._opened: _Opened | None = None

    def open(self) -> None:
        """Opens the handler in the running loop. Raises UsageError if the handler is open already."""
        if self._opened is not None:
            raise UsageError("the handler is open already, in one loop of one process: close it there, or make another")
        loop = asyncio.get_running_loop()
        if self._is_of_pool:
            places = _places_of(engine_of(self._database).sync_engine.pool, loop, self._running_max)
        else:
            places = asyncio.Semaphore(self._running_max)
        self._opened = _Opened(loop, os.getpid(), places)

    def require_open(self) -> _Opened:
        """Raises UsageError if the handler is not open, or was opened before a fork. Raises UsageError in a running
        loop, too, because the call would block the loop."""
        opened = self._opened
        if opened is None:
            raise UsageError("the handler is asynchronous and not open: run its consumer inside `async with` of it")
        if opened.process != os.getpid():
            raise UsageError("the handler was opened before a fork: decorate and open one in each process")
        if is_in_loop():
            raise UsageError("an asynchronous handler is called on a thread: it would block the loop that is running")
        return opened

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs the work as a task of the loop and waits on this thread. Raises what the work raises.

        Raises InboxNotReached if the work did not begin. Raises TransientError if the work was cancelled, or if the
        loop has ended.
        """
        opened = self.require_open()
        answer: Future[T] = Future()
        try:
            opened.loop.call_soon_threadsafe(self._begin, opened, work, answer)
        except RuntimeError as error:
            raise InboxNotReached("the loop of the handler is closed") from error
        while not wait((answer,), timeout=LOOP_LOOK_SECONDS).done:
            if opened.loop.is_closed():  # a closed loop has dropped the calls that it had not begun
                raise TransientError("the loop of the handler has ended: the message comes again")
        return answer.result()

    async def close(self) -> None:
        """Cancels the running calls and waits at most CANCEL_SECONDS until they have rolled back."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        opened.is_closed = True
        for task in opened.tasks:
            task.cancel()
        if opened.tasks:
            _, left = await asyncio.wait(tuple(opened.tasks), timeout=CANCEL_SECONDS)
            if left:
                logger.warning("handlers_not_cancelled: %d calls of a handler go on after its end", len(left))

    def open_apart(self) -> Callable[[], None]:
        """Opens the handler in a loop on a thread of its own, for a process without a loop. Does nothing if the handler
        is open. The returned function closes the handler and ends the thread. The returned function also closes the
        pooled connections of an engine, because these connections belong to that loop."""
        if self._opened is not None:
            return lambda: None
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="handlers-loop", daemon=True)
        thread.start()

        async def open_here() -> None:
            self.open()

        asyncio.run_coroutine_threadsafe(open_here(), loop).result()

        async def close_here() -> None:
            await self.close()
            if (engine := engine_of(self._database)) is not None:
                await engine.dispose()

        def close() -> None:
            asyncio.run_coroutine_threadsafe(close_here(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

        return close

    def _begin(self, opened: _Opened, work: Callable[[], Coroutine[Any, Any, T]], answer: Future[T]) -> None:
        if opened.is_closed:
            answer.set_exception(InboxNotReached("the handler was closed before the message had begun"))
            return
        task = opened.loop.create_task(_in_place(opened.places, work))
        opened.tasks.add(task)
        task.add_done_callback(partial(_hand_over, opened, answer))


def _places_of(pool: Any, loop: asyncio.AbstractEventLoop, most: int) -> asyncio.Semaphore:
    known, places = _PLACES.get(pool, (None, None))
    if places is None or known is None or known() is not loop:
        places = asyncio.Semaphore(most)
        _PLACES[pool] = weakref.ref(loop), places
    return places


async def _in_place(places: asyncio.Semaphore, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async with places:
        try:
            return await work()
        except SystemExit as error:  # a SystemExit would end the loop of the service
            raise TransientError("the handler raised SystemExit: the message comes again") from error


def _hand_over(opened: _Opened, answer: Future[T], task: asyncio.Task[T]) -> None:
    opened.tasks.discard(task)
    if task.cancelled():
        answer.set_exception(TransientError(f"{_why_cancelled(opened, task)}: the message comes again"))
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


def _why_cancelled(opened: _Opened, task: asyncio.Task[Any]) -> str:
    try:
        task.result()
    except _CancelledThoughReturned as error:
        if not opened.is_closed:
            return (
                f"the handler was cancelled and returned though, cancelling() is {error.times} (all tasks of the loop "
                "cancelled? a library that gives up without uncancel()? aiohttp >= 3.10.8, async_timeout >= 4.0.3)"
            )
    except asyncio.CancelledError:
        pass
    return "the handler was cancelled"


class _CancelledThoughReturned(asyncio.CancelledError):
    """Raised if a handler has swallowed a cancellation. Nothing shows who cancelled the handler."""

    def __init__(self, times: int) -> None:
        super().__init__(times)
        self.times = times


def is_in_loop() -> bool:
    """Returns True if a loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def on_thread(step: Callable[[], T]) -> T:
    """Runs a blocking step on a thread of its own. A cancellation ends only the waiting; the step continues."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # so a cancellation cannot reach the step

    def run() -> None:
        try:
            answer.set_result(step())
        except BaseException as error:  # noqa: BLE001  # the waiting task gets it
            answer.set_exception(error)

    threading.Thread(target=run, name=getattr(step, "__qualname__", None), daemon=True).start()
    return await asyncio.wrap_future(answer)


class AwaitedSession(SqlSession, AwaitedConnection):
    """An asynchronous connection of the service, as the inbox uses it. Only a procedure that on_connection() runs may
    use it."""

    def require_guarded(self) -> None:
        """Does what SqlSession.require_guarded does. A connection of asyncpg is always in autocommit, so run_handler()
        guards it."""
        if self._package != "asyncpg":
            super().require_guarded()

    def require_committed(self) -> None:
        """Checks the connection after the commit. Raises UnsafeConnection if asyncpg is still in a transaction of which
        SQLAlchemy does not know.

        A pool may give a connection that is already inside a transaction (sqlalchemy/sqlalchemy, issue 13381). Then our
        transaction was only a savepoint of the outer transaction. If the outer transaction were rolled back later, the
        effect of an acknowledged message would vanish. So the connection is ended here.
        """
        if self._package != "asyncpg" or self.is_open() or not self._is_in_transaction():
            return
        with suppress(Exception):
            self._raw.terminate()  # the pool makes a new one
        raise UnsafeConnection(
            "the connection came from its pool inside a transaction that was never ended: nothing of the message is "
            "committed, it comes again. Look for what begins one below SQLAlchemy, or is cancelled while it does"
        )

    def run_handler(self, handled: Awaitable[object]) -> object:
        """Waits for the handler's coroutine, and raises what the coroutine raises. Raises UsageError if the guard ended
        the connection."""
        if self._package != "asyncpg":
            return wait_for(handled)
        has_struck = False

        def end_if_committing() -> None:
            # asyncpg begins no transaction by itself. After a ROLLBACK from the handler, asyncpg would commit each
            # later statement at once, and again at each delivery. A terminated connection takes no statement.
            nonlocal has_struck
            if has_struck or self._is_in_transaction():
                return
            with suppress(Exception):  # the connection was given back to its pool
                if not self._raw.is_closed():  # a connection that the server closed is no mistake of the handler
                    self._raw.terminate()
                    has_struck = True

        try:
            return wait_for(_watched(handled, end_if_committing))
        except Exception as error:
            if has_struck:
                raise UsageError(ENDED) from error
            raise
        finally:
            if has_struck and self._alchemy is not None:
                with suppress(Exception):  # the handler has closed it
                    self._alchemy.invalidate()  # otherwise the pool would give it to the next message

    def select_one(self, sql: str, parameters: Parameters) -> Any:
        """Does what SqlSession.select_one does. Only the inbox runs these statements. If a statement meets a failed
        transaction, the handler has swallowed the error."""
        try:
            return super().select_one(sql, parameters)
        except Exception as error:
            if sqlstate_of(driver_error(error)) == _FAILED_TRANSACTION:
                raise UsageError(ENDED) from error
            raise


class AwaitedSqlInbox:
    """The inbox in the service's own database, like SqlInbox, for handlers that are coroutines.

    `database` is a SQLAlchemy AsyncEngine, an async_sessionmaker, or a callable. The callable returns an AsyncSession,
    an AsyncConnection, a connection of asyncpg, or an AsyncConnection of psycopg. The callable may also return an
    object that gives such a connection by `await` or `async with`, as `acquire` of asyncpg's pool does. After its
    message, each connection is closed or given back. Threads call this inbox.
    """

    is_weaker = False

    def __init__(self, database: Any, loop: HandlersLoop) -> None:
        """Raises InvalidValue if `database` gives no asynchronous connection. Raises MissingDependency if greenlet is
        not installed."""
        require_async_database(database)
        if find_spec("greenlet") is None:
            raise MissingDependency(f"asynchronous connections need greenlet: {install('asyncio')}")
        self._database = database
        self._loop = loop

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        """Does what SqlInbox.apply_once does. The effect returns an awaitable."""
        return self.apply_together([(entry, effect)])[0]

    def apply_together(self, work: Iterable[tuple[InboxEntry, Effect]]) -> list[InboxAnswer]:
        """Does what SqlInbox.apply_together does, as one task of the loop. Can also raise the errors of
        HandlersLoop.run."""
        return self._loop.run(lambda: self._apply_together(work))

    async def _apply_together(self, work: Iterable[tuple[InboxEntry, Effect]]) -> list[InboxAnswer]:
        async with _connected(self._database) as connection:
            sessions: list[AwaitedSession] = []

            def apply(given: object) -> list[InboxAnswer]:
                session = AwaitedSession(given)
                sessions.append(session)
                if session.is_of_driver and session.is_pipelined:
                    raise UnsafeConnection("the connection is in pipeline mode, which is not awaited here")
                awaited = ((entry, partial(_until_done, session, effect)) for entry, effect in work)
                return apply_in(session, connection, awaited, database=self._database)

            async with _in_transaction(connection):
                answers = await on_connection(connection, apply)
            sessions[0].require_committed()
            return answers


def _until_done(session: AwaitedSession, effect: Effect, connection: Any) -> object:
    done = session.run_handler(effect(connection))  # type: ignore[arg-type]  # the handler's coroutine
    task = asyncio.current_task()
    if task is not None and (times := task.cancelling()):  # code that cancels a part of its work calls uncancel()
        raise _CancelledThoughReturned(times)  # anybody may have cancelled
    return done


@types.coroutine
def _watched(handled: Awaitable[object], look: Callable[[], None]) -> Generator[Any, Any, object]:
    """Awaits `handled`, and calls `look` after each of its waits."""
    steps = handled.__await__()
    thrown: BaseException | None = None
    while True:
        try:
            waited_for = next(steps) if thrown is None else steps.throw(thrown)
        except StopIteration as ended:
            return ended.value
        thrown = None
        try:
            yield waited_for
        except BaseException as error:  # noqa: BLE001  # goes into the handler
            thrown = error
        look()


@asynccontextmanager
async def _connected(database: Any) -> AsyncIterator[Any]:
    """Opens a connection for one message, and always closes the connection or gives it back."""
    async with AsyncExitStack() as stack:
        given = database.connect() if is_async_engine(database) else database()
        if hasattr(given, "__aenter__"):
            connection = await stack.enter_async_context(given)
        else:
            connection = await given if isawaitable(given) else given
            stack.push_async_callback(_close, connection)
        yield connection


async def _close(connection: Any) -> None:
    with suppress(Exception):  # the first error is shown
        await connection.close()


@asynccontextmanager
async def _in_transaction(connection: Any) -> AsyncIterator[None]:
    transaction = connection
    if not hasattr(connection, "commit"):  # asyncpg's own
        transaction = connection.transaction()
        await transaction.start()
    try:
        yield
        await transaction.commit()
    except BaseException:
        with suppress(Exception):  # the first error is shown; closing rolls back, too
            await transaction.rollback()
        raise


def require_async_database(database: object) -> None:
    """Raises InvalidValue if `database` gives no connection, or if its connections are synchronous."""
    is_synchronous = isinstance(database, sa.Engine | Inbox) or hasattr(database, "class_")
    if is_synchronous and not is_asynchronous(database):
        remedy = "it is synchronous: give an AsyncEngine or async_sessionmaker, or write the handler as plain `def`"
    elif not (is_async_engine(database) or callable(database)):
        remedy = "give an AsyncEngine, an async_sessionmaker, or a function that returns a connection"
    else:
        return
    raise InvalidValue("database", getattr(database, "__qualname__", type(database).__qualname__), remedy)
