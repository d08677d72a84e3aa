"""@transactional_handler: runs an existing handler at most once per message, and records the message.

    inbox row -> business effect -> database commit -> SADD to the commit set -> acknowledge

A duplicate is recorded again and acknowledged, because the first run may have died before its SADD. The message is
acknowledged even if the recorder failed: a scan of the inbox finds the keys that the recorder missed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import (
    Parameter,
    isasyncgen,
    isasyncgenfunction,
    isawaitable,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
    signature,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, cast, runtime_checkable

import sqlalchemy as sa

from checkback_consumers.asynchronous import RUNNING_MAX_DEFAULT, AwaitedSqlInbox, HandlersLoop
from checkback_consumers.effect import BatchInbox, Inbox, SqlInbox, require_database
from checkback_consumers.errors import HandlerRefused, InboxNotReached, IncompleteEffect
from checkback_consumers.inbox import SOURCE_CONSUMER, InboxAnswer, InboxEntry
from checkback_consumers.message import ConsumedMessage, dedupe_identity, digest_of, former_identity
from reconciler.contract.tables import INBOX
from reconciler.contract.unique_key import is_unique_key
from reconciler.errors import Collision, InvalidValue, ReconcilerError, UsageError, told_error
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC, HALF_TOPICS
from reconciler.sql.awaited_connection import connections_max, is_async_engine
from reconciler.sql.driver_errors import class_names, driver_error, lacks_schema, sqlstate_of
from reconciler.sql.rights import is_refused

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

logger = logging.getLogger(__name__)

#: Topics in which brokers keep halves. A message in such a topic is not committed, but a tool can make a consumer take
#: any record directly (request code 309).
_UNDECIDED = HALF_TOPICS | {DISCARD_TOPIC}

#: The service's own function, called as handler(message, connection). The function is a `def` or an `async def`, and
#: neither commits nor rolls back.
BusinessHandler = Callable[[Any, Any], object]
DedupeBy = Callable[[ConsumedMessage], str | None]
#: Returns the database of a message: an Engine, a sessionmaker, or a function that returns a connection. All deliveries
#: of a message must get the same database.
DatabaseOf: TypeAlias = "Callable[[ConsumedMessage], sa.Engine | AsyncEngine | Callable[[], Any]]"


class KeyRecorder(Protocol):
    """Records consumed keys. The batching recorder is in consumers/checkback_consumers/recorder.py."""

    def record(self, topic: str, unique_key: str) -> bool:
        """Returns True if the key is in its commit set. Never raises, and returns within the time limit of the
        recorder."""
        ...


@runtime_checkable
class BatchRecorder(KeyRecorder, Protocol):
    """A recorder that takes several keys at once."""

    def record_many(self, topic: str, unique_keys: Sequence[str], *, wait: bool = False) -> bool:
        """Records all keys. Returns False if a key is not in its commit set. Without `wait`, the call returns at
        once."""
        ...


@dataclass(slots=True, kw_only=True)
class HandlerCounts:
    """Counts since the handler was made. The consumer's threads write the counts without a lock, so the counts are
    nearly exact."""

    applied: int = 0
    duplicates: int = 0
    failed: int = 0
    collisions: int = 0
    #: Failed messages whose inbox row is incomplete.
    incomplete: int = 0
    #: Acknowledged messages whose recording the recorder did not confirm.
    unrecorded: int = 0


@dataclass(frozen=True, slots=True)
class _Batches:
    """Inbox and recorder of a handler that takes several messages in one transaction."""

    inbox: BatchInbox
    recorder: BatchRecorder | None

    @classmethod
    def of(cls, inbox: Inbox | Callable[[ConsumedMessage], Inbox], recorder: KeyRecorder | None) -> _Batches:
        """Raises InvalidValue if inbox or recorder takes only one message at a time."""
        if not isinstance(inbox, Inbox):
            raise InvalidValue("is_batched", value=True, remedy="leave it out: each message may have another database")
        if not isinstance(inbox, BatchInbox):
            raise InvalidValue("is_batched", value=True, remedy=f"leave it out: {type(inbox).__name__} has no batches")
        if recorder is not None and not isinstance(recorder, BatchRecorder):
            raise InvalidValue(
                "is_batched", value=True, remedy=f"leave it out: {type(recorder).__name__} has no batches"
            )
        return cls(inbox, recorder)

    def record(self, messages: Sequence[ConsumedMessage]) -> int:
        """Waits once for all keys. Returns the number of keys that could not be confirmed."""
        if self.recorder is None:
            return 0
        keys: dict[str, list[str]] = {}
        for message in messages:
            if is_unique_key(message.unique_key):
                keys.setdefault(message.topic, []).append(message.unique_key)
        return sum(len(some) for topic, some in keys.items() if not self.recorder.record_many(topic, some, wait=True))


class TransactionalHandler:
    """A handler behind its inbox. Call it with a message.

    The call returns CONSUME_SUCCESS or RECONSUME_LATER and lets no Exception out. These answers suit concurrent,
    orderly and pull consumption and the native client. `apply` does the same work, but raises exceptions. Threads can
    share a handler: it keeps nothing but counters.

    `async with` opens an `async def` handler in the running loop, where its calls then run. The end of the block
    cancels calls that still run, and their messages come again. Threads call the handler like any other handler, and
    wait. A call in another loop or after a fork raises UsageError.
    """

    def __init__(
        self,
        handler: BusinessHandler,
        inbox: Inbox | Callable[[ConsumedMessage], Inbox],
        *,
        group: str,
        topics: Iterable[str] | None = None,
        recorder: KeyRecorder | None = None,
        dedupe_by: DedupeBy | None = None,
        is_batched: bool = False,
        loop: HandlersLoop | None = None,
    ) -> None:
        """`inbox` is one inbox for all messages, or a function that returns the inbox of a message, in one of several
        databases. `loop` is the loop of a handler that is a coroutine, or None if the handler is a plain function."""
        if not isinstance(group, str) or not group:
            raise InvalidValue("group", group, "name the consumer group")
        _require_two_arguments(handler)
        if loop is None and _runs_later(handler):
            raise InvalidValue(
                "handler",
                getattr(handler, "__qualname__", type(handler).__qualname__),
                "it is async or a generator, so that a call does no work: write a plain function over a synchronous "
                "database, or `async def` over an asynchronous one",
            )
        recorded_group = getattr(recorder, "group", group)
        if recorded_group != group:
            raise InvalidValue(
                "recorder",
                recorded_group,
                f"the handler consumes for group {group!r}, whose commit sets would stay empty: open a recorder with "
                "that group",
            )
        self.group = group
        self.topics = None if topics is None else frozenset(topics)
        self.counts = HandlerCounts()
        self.is_weaker = isinstance(inbox, Inbox) and inbox.is_weaker
        self._handler = handler
        self._inbox_of: Callable[[ConsumedMessage], Inbox] = (lambda _: inbox) if isinstance(inbox, Inbox) else inbox
        self._recorder = recorder
        self._dedupe_by = dedupe_by
        self._loop = loop
        self._batches = _Batches.of(inbox, recorder) if is_batched else None

    def __call__(self, message: ConsumedMessage) -> ConsumeStatus:
        """Runs the handler for the message. After an exception, the call returns RECONSUME_LATER, and the broker
        delivers the message again."""
        try:
            self.apply(message)
        except Collision as error:
            # The broker delivers the message again, up to its maximum of deliveries. Then the message stays in the
            # dead-letter queue, for a person.
            logger.error("collision: not applied: %s", error)  # noqa: TRY400 - the trace says nothing
            return ConsumeStatus.RECONSUME_LATER
        except IncompleteEffect as error:
            logger.error("effect_incomplete: not applied: %s", error)  # noqa: TRY400 - the trace says nothing
            return ConsumeStatus.RECONSUME_LATER
        except HandlerRefused as error:
            logger.info("handler_refused: %s", error)
            return ConsumeStatus.RECONSUME_LATER
        except Exception:
            logger.exception(
                "message_comes_again: %s of topic %s was not applied and comes again", message.unique_key, message.topic
            )
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    @property
    def is_asynchronous(self) -> bool:
        """True if the handler is an `async def`."""
        return self._loop is not None

    def require_open(self) -> None:
        """Raises UsageError if an asynchronous handler is not open, was opened before a fork, or is called in a running
        loop. The consumer and the replay worker call this method."""
        if self._loop is not None:
            self._loop.require_open()

    def open_apart(self) -> Callable[[], None]:
        """Opens an asynchronous handler in a loop on a thread of its own, unless the handler is open. Returns a
        function that closes the handler and ends the thread. `reconciler replay` and the test kit run no loop, so they
        call this method."""
        return (lambda: None) if self._loop is None else self._loop.open_apart()

    async def __aenter__(self) -> Self:
        """Opens an asynchronous handler in the running loop. Raises UsageError if the handler is open already, or is
        synchronous."""
        if self._loop is None:
            raise UsageError(f"the handler of {self.group} is synchronous: there is nothing to open")
        self._loop.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancels calls that still run, and waits at most 15 s until they have rolled back. Their messages come again.
        The handler may be opened again."""
        assert self._loop is not None  # noqa: S101 - else it was not opened
        await self._loop.close()

    def listener(self, messages: Sequence[ConsumedMessage]) -> ConsumeStatus | FailedAt:
        """Handles a batch, as the listener of a push consumer. The call stops at the first message that fails and
        returns the position of this message. Messages before this position are acknowledged. Messages after this
        position run without the failed message. In orderly consumption, they run later."""
        if self._batches is not None and len(messages) > 1 and self._apply_batch(self._batches, messages):
            return ConsumeStatus.CONSUME_SUCCESS
        for position, message in enumerate(messages):
            if self(message) is not ConsumeStatus.CONSUME_SUCCESS:
                return FailedAt(position) if len(messages) > 1 else ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    def apply(self, message: ConsumedMessage, *, source: str = SOURCE_CONSUMER) -> InboxAnswer:
        """Applies one message: inbox row, effect, commit, record. When it returns, the message may be acknowledged.

        Can raise HandlerRefused, Collision, IncompleteEffect, InboxNotReached, and every error of the handler or of the
        function that gives its database. Raises UsageError if the handler ended the transaction, or if the topic is not
        the handler's. Raises the database's error if the database fails after the handler has begun. After an error
        nothing was applied, with two exceptions. If the commit failed without an answer, the next delivery finds out
        whether the effect happened. If the handler has committed, its inbox row is incomplete.
        """
        try:
            entered = self._apply(message, source)
        except Exception as error:
            self.counts.failed += 1
            self.counts.collisions += isinstance(error, Collision)
            self.counts.incomplete += isinstance(error, IncompleteEffect)
            raise
        self._count(message, entered)
        self._record(message)
        return entered

    def _apply_batch(self, batches: _Batches, messages: Sequence[ConsumedMessage]) -> bool:
        """Applies all messages in one transaction. Returns False if the transaction failed. Then no message had its
        effect, and each message runs in a transaction of its own."""
        try:
            work = [(self._entry(message, SOURCE_CONSUMER), partial(self._run, message)) for message in messages]
            entered = batches.inbox.apply_together(work)
        except Exception as error:  # noqa: BLE001 - each message is tried alone next, and the faulty one fails again
            logger.info(
                "batch_split: %d messages of group %s go one by one: %s", len(messages), self.group, told_error(error)
            )
            return False
        for message, one in zip(messages, entered, strict=True):
            self._count(message, one)
        self.counts.unrecorded += batches.record(messages)
        return True

    def _count(self, message: ConsumedMessage, entered: InboxAnswer) -> None:
        if entered is InboxAnswer.NEW:
            self.counts.applied += 1
        else:
            self.counts.duplicates += 1
            logger.info(
                "duplicate: %s of topic %s had its effect before (%s)", message.unique_key, message.topic, entered
            )

    def _apply(self, message: ConsumedMessage, source: str) -> InboxAnswer:
        entry = self._entry(message, source)
        inbox = self._inbox_of(message)
        has_begun = False

        def effect(connection: Any) -> object:
            nonlocal has_begun
            has_begun = True
            return self._run(message, connection)

        try:
            return inbox.apply_once(entry, effect)
        except ReconcilerError:
            raise
        except Exception as error:
            if has_begun or _is_of_the_message(error):
                raise
            raise InboxNotReached(f"the inbox of {self.group}: {told_error(error)}{_remedy(error)}") from error

    def _entry(self, message: ConsumedMessage, source: str) -> InboxEntry:
        if message.topic in _UNDECIDED:
            raise UsageError(
                f"handler of {self.group} got a half message of {message.topic}, which may yet be rolled back: have "
                "the message consumed that its topic holds, not this copy"
            )
        if self.topics is not None and message.topic not in self.topics:
            raise UsageError(f"handler of {self.group} got a message of topic {message.topic}, not {set(self.topics)}")
        unique_key, former_key = dedupe_identity(message), former_identity(message)
        return InboxEntry(
            group=self.group,
            unique_key=unique_key,
            topic=message.topic,
            content_digest=digest_of(message, unique_key),
            dedupe_key=self._dedupe_by(message) if self._dedupe_by else None,
            source=source,
            former_key=former_key,
            former_digest=None if former_key is None else digest_of(message, former_key),
        )

    def _run(self, message: ConsumedMessage, connection: Any) -> object:
        """Runs the handler. Returns the awaitable of an asynchronous handler, and None for a synchronous handler."""
        answer = self._handler(message, connection)
        if self._loop is not None:
            return self._until_done(message, cast("Awaitable[object]", answer))
        self._require_done(message, answer)
        return None

    async def _until_done(self, message: ConsumedMessage, answer: Awaitable[object]) -> None:
        self._require_done(message, await answer)

    def _require_done(self, message: ConsumedMessage, answer: object) -> None:
        """Raises UsageError if the handler's work has not run. Raises HandlerRefused if the handler asked for the
        message again."""
        if isawaitable(answer) or isgenerator(answer) or isasyncgen(answer):
            # The handler's work has not run, but the inbox row would say that it has.
            if hasattr(answer, "close"):
                answer.close()
            raise UsageError(f"the handler of {self.group} is async or a generator: it must do its work when called")
        # A handler may also return a ConsumeStatus of rocketmq-client-python, or the name of Java's orderly status.
        name = getattr(answer, "name", answer)
        if answer is False or (isinstance(name, str) and name in {"RECONSUME_LATER", "SUSPEND_CURRENT_QUEUE_A_MOMENT"}):
            raise HandlerRefused(f"{message.unique_key} of topic {message.topic}: the handler answered {answer!r}")

    def _record(self, message: ConsumedMessage) -> None:
        if self._recorder is None or not is_unique_key(message.unique_key):
            return
        if not self._recorder.record(message.topic, message.unique_key):
            self.counts.unrecorded += 1


def _require_two_arguments(handler: Callable[..., object]) -> None:
    """Raises InvalidValue for a handler that cannot be called with a message and a connection."""
    if getattr(handler, "__signature__", None) is not None:
        return  # a decorator wrote it, which may not be how the handler is called
    try:
        found = signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):  # written in C, without a signature
        return
    try:
        found.bind(None, None)
    except TypeError as error:
        name = getattr(handler, "__qualname__", type(handler).__qualname__)
        remedy = f"it is called as {name}(message, connection), with both by position"
        raise InvalidValue("handler", f"{name}{found}", remedy) from error


def _remedy(error: Exception) -> str:
    """Returns what ends an error of the inbox's own table; empty: nothing here does."""
    text = str(driver_error(error)).partition("\n")[0]
    if INBOX.name not in text:
        return ""
    if lacks_schema(text):
        what = f"{INBOX.name} lacks a column" if "column" in text else f"the table {INBOX.name} is missing"
        return f"; {what}: run reconciler db upgrade inbox"
    if is_refused(error):
        return f"; GRANT SELECT, INSERT, UPDATE (incomplete) ON {INBOX.name} to this login"
    return ""


def _runs_later(function: Callable[..., object]) -> bool:
    """Returns True if a call of the handler only returns a coroutine or a generator, and does no work."""
    return any(
        is_later(one)
        for one in (function, type(function).__call__)
        for is_later in (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
    )


def _is_coroutine(function: Callable[..., object]) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def _is_of_the_message(error: Exception) -> bool:
    """Returns True if a database refused the inbox row for its values, for example a NUL in PostgreSQL."""
    original = driver_error(error)
    is_of_values = bool(class_names(original) & {"DataError", "ValueError", "OverflowError"})
    return is_of_values or sqlstate_of(original)[:2] == "22"  # asyncpg's classes have other names


def _inbox_of(database_of: DatabaseOf, loop: HandlersLoop | None, message: ConsumedMessage) -> Inbox:
    database = database_of(message)
    is_engine = isinstance(database, sa.Engine) or is_async_engine(database)
    if not is_engine and (isinstance(database, Inbox) or not callable(database)):
        raise UsageError(
            f"the database of {message.unique_key} is {type(database).__name__}: return an Engine, a sessionmaker, or "
            "a function that returns a connection"
        )
    return _inbox_in(database, loop)


def _takes_a_message(database: Callable[..., Any]) -> bool:
    """Returns True if the function needs an argument. A function without arguments returns a connection."""
    try:
        parameters = signature(database).parameters.values()
    except (TypeError, ValueError):  # a function written in C has no signature
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return any(one.kind in positional and one.default is Parameter.empty for one in parameters)


def _inbox_for(database: Any, loop: HandlersLoop | None) -> Inbox | Callable[[ConsumedMessage], Inbox]:
    if isinstance(database, Inbox) and loop is None:
        return database
    if not isinstance(database, sa.Engine) and callable(database) and _takes_a_message(database):
        require_database(database)  # only the function is checked here; its result is checked for each message
        return partial(_inbox_of, cast("DatabaseOf", database), loop)
    return _inbox_in(database, loop)


def _inbox_in(database: Any, loop: HandlersLoop | None) -> Inbox:
    return SqlInbox(database) if loop is None else AwaitedSqlInbox(database, loop)


def _loop_for(database: object, running_max: int | None) -> HandlersLoop:
    if running_max is not None and running_max < 1:
        raise InvalidValue("running_max", running_max, "1 or more")
    of_pool = None if running_max else connections_max(database)
    most = running_max or of_pool or RUNNING_MAX_DEFAULT
    return HandlersLoop(running_max=most, database=database, is_of_pool=of_pool is not None)


def transactional_handler(
    #: An Engine, a sessionmaker, or a function without arguments that returns a Session, a Connection or a DB-API
    #: connection not in autocommit. A function of the message may return one of these three. A `RedisInbox` is
    #: possible, too, but weaker.
    database: sa.Engine | AsyncEngine | Inbox | Callable[[], Any] | DatabaseOf,
    *,
    #: Consumer group.
    group: str,
    #: Topics that the handler takes. None: all topics that its consumer subscribes to.
    topics: str | Iterable[str] | None = None,
    #: Records consumed keys in Redis. None: the reconciler finds effects only in the inbox.
    recorder: KeyRecorder | None = None,
    #: Returns a message's business id, as `checkback_consumers.business_id` does. Two keys with one business id have
    #: one effect per database. None: only keys are compared.
    dedupe_by: DedupeBy | None = None,
    #: True: one transaction takes all messages of a delivery (`PushSettings.batch_size`).
    is_batched: bool = False,
    #: Number of calls of an `async def` handler that may run at a time. None: all handlers of an engine share as many
    #: calls as its pool has connections. Without such a pool, the number is 20.
    running_max: int | None = None,
) -> Callable[[BusinessHandler], TransactionalHandler]:
    """Decorates ``handler(message, connection)`` so that it takes effect once and is recorded.

    The handler writes through the connection that it gets, in the transaction of the inbox row. The handler neither
    commits nor rolls back. To get the message again, the handler raises, or returns False or RECONSUME_LATER. Each
    message has a connection of its own, which is closed afterwards. Engines belong to the caller.

    If `database` is a function of the message, it must return the same database for every delivery of a message.
    Otherwise, the message takes effect twice. If the function raises, nothing is applied and the message comes again.

    `is_batched` saves a commit per message. The handler still gets one message at a time. If one message fails, all
    messages of the batch are rolled back and run again, each in a transaction of its own. Then effects outside the
    database happen twice.

    An `async def` needs an asynchronous database: an AsyncEngine, an async_sessionmaker, or a function. The function
    returns an AsyncSession, an AsyncConnection, a connection of asyncpg, or an AsyncConnection of psycopg. The function
    may also return an object that gives such a connection by `await` or `async with`.
    """
    wanted = (topics,) if isinstance(topics, str) else topics

    def decorate(handler: BusinessHandler) -> TransactionalHandler:
        loop = _loop_for(database, running_max) if _is_coroutine(handler) else None
        return TransactionalHandler(
            handler,
            _inbox_for(database, loop),
            group=group,
            topics=wanted,
            recorder=recorder,
            dedupe_by=dedupe_by,
            is_batched=is_batched,
            loop=loop,
        )

    return decorate
