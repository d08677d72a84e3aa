"""The producer's face for asyncio. Only `record` uses the caller's connection; nothing blocks the caller's loop.

async with producer.transaction(message) as tx, session.begin():   # the half is sent; the caller's transaction
    await tx.record(session)                                       # outbox row: first statement
    ...                                                            # business
                                                                   # commit; then outcome, END_TRANSACTION, announcement

A cancelled block raises CancelledError at once. The remaining work of the block becomes a step on a thread, and the
producer's end waits for this step.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from checkback_producers.apart import StepsApart
from checkback_producers.client_python import NativeProducer
from checkback_producers.ports import Outcome
from checkback_producers.producer import TransactionalProducer
from checkback_producers.transaction import Block, TransactionParts, is_interruption
from reconciler.contract.extras import install
from reconciler.errors import InvalidValue, MissingDependency, UsageError
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.awaited_connection import connect_ahead, connections_max, engine_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from checkback_producers.ports import AwaitedOutbox

BLOCKS_MAX_DEFAULT = 20
WAIT_SECONDS = 30.0


class AsyncTransaction(Block):
    """One block of an AsyncTransactionalProducer. Only the task that runs the block may use it.

    `outcome` and `end_answer` have the meaning that they have in Transaction. After a cancelled block both are None
    until the block's last step has read the outcome and sent END_TRANSACTION.
    """

    def __init__(
        self, parts: TransactionParts, message: Message, steps: StepsApart, engine: AsyncEngine | None = None
    ) -> None:
        """`engine`: the engine of the connection that the block will need."""
        super().__init__(parts, message)
        self._steps = steps
        self._engine = engine
        self._is_entered = False
        self._was_open = True

    async def record(self, connection: object) -> None:
        """Writes the outbox row as the first statement of the caller's transaction. Commits nothing.

        Takes a SQLAlchemy AsyncSession or AsyncConnection (asyncpg, psycopg, aiosqlite, asyncmy), a Connection of
        asyncpg or an AsyncConnection of psycopg. Raises what Transaction.record raises.
        """
        self._steps.require_open()
        with self._recording_in() as (outbox, entry):
            if not hasattr(outbox, "record_awaited"):  # isinstance() with a protocol costs as much as a step
                raise UsageError(f"{type(outbox).__qualname__} records on synchronous connections only")
            self._local = await cast("AwaitedOutbox", outbox).record_awaited(connection, entry, self._steps.run)

    async def __aenter__(self) -> Self:
        """Waits for a place, makes sure that the pool has a connection, then sends the half. Can raise NoPlace,
        HalfNotSafe (END ROLLBACK was sent), TransientError and PermanentError. If the task is cancelled meanwhile, END
        ROLLBACK is sent once the half's answer is known."""
        self._steps.require_open()
        if self._is_entered:
            raise UsageError("a transaction is one block: make another one for another message")
        self._is_entered = True
        await self._steps.take_place()
        try:
            if self._engine is not None:
                await connect_ahead(self._engine)  # a half that waits for a new connection might be checked back
            sending = self._steps.start(self.send)
        except BaseException:
            self._steps.give_place_back()
            raise
        try:
            await self._steps.answer_of(sending)
        except BaseException:
            sending.cancel()  # has no effect once the sending runs
            with suppress(UsageError):
                self._steps.leave(partial(self._give_up, sending))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Reads the outcome, sends END_TRANSACTION, announces a commit. An exception in flight passes through.

        If no exception is in flight, the block raises NotRecorded without a row, and NotCommitted without a commit. An
        interrupted block waits for nothing.
        """
        # A connection that cannot be asked counts as open, so that an invisible row does not count as a rollback.
        with suppress(Exception):
            self._was_open = super()._is_open()  # asked in the loop to which the connection belongs
        is_clean, is_interrupted = error is None, is_interruption(error)
        try:
            ending = self._steps.leave(partial(self.finish, is_clean=is_clean, is_interrupted=is_interrupted))
        except UsageError as closed:
            self._leave_unknown(str(closed))
            return
        ending.add_done_callback(self._note_dropped)
        if error is None or isinstance(error, Exception):
            with suppress(CancelledError):  # the producer's end dropped the step
                await self._steps.answer_of(ending)
        if error is None:
            self.require_commit()

    def _is_open(self) -> bool:
        return self._was_open

    def _give_up(self, sending: Future[None]) -> None:
        if not sending.cancelled() and sending.exception() is None:
            self.finish(is_clean=False)

    def _note_dropped(self, ending: Future[None]) -> None:
        if ending.cancelled():
            self._leave_unknown("the producer was closed before the outcome could be read")

    def _leave_unknown(self, reason: str) -> None:
        self.outcome, self.reason = Outcome.UNKNOWN, reason
        self._tell_unknown()


class AsyncTransactionalProducer:
    """A TransactionalProducer for asyncio. `async with` starts the producer and shuts it down.

    The producer belongs to the loop and process that open it. A block without a free place waits before it sends
    anything. If there are as many places as the service's pool has connections, no half waits for a connection. If the
    pool of `database` has no idle connection, a block opens a connection before it sends its half.
    """

    def __init__(
        self,
        #: The result of `open_producer`. The producer must not be started yet.
        producer: TransactionalProducer,
        *,
        #: The engine that the blocks use. The size of its pool, with overflow, gives `blocks_max`.
        database: AsyncEngine | None = None,
        #: Number of blocks that may be open at a time. None: as many as `database` has connections, or 20 without
        #: `database`.
        blocks_max: int | None = None,
        #: How long a block waits for a place before it raises TransientError.
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Takes over the producer. Raises InvalidValue for unusable arguments, and MissingDependency if greenlet is not
        installed."""
        if isinstance(producer, NativeProducer):
            raise InvalidValue("producer", type(producer).__qualname__, "rocketmq-client-python has threads only")
        if find_spec("greenlet") is None:
            raise MissingDependency(f"asynchronous connections need greenlet: {install('asyncio')}")
        if blocks_max is None:
            blocks_max = connections_max(database) or BLOCKS_MAX_DEFAULT
        for name, value in (("blocks_max", blocks_max), ("wait_seconds", wait_seconds)):
            if not value > 0:
                raise InvalidValue(name, value, "more than 0")
        self.group = producer.group
        self.counts = producer.counts
        self._producer = producer
        self._engine: AsyncEngine | None = engine_of(database)
        self._steps = StepsApart(blocks_max=blocks_max, wait_seconds=wait_seconds)

    def transaction(self, message: Message, *, business_id: str | None = None) -> AsyncTransaction:
        """Makes a block for one message, as TransactionalProducer.transaction does."""
        return AsyncTransaction(*self._producer.prepared(message, business_id), self._steps, self._engine)

    async def __aenter__(self) -> Self:
        """Starts the producer. Raises what TransactionalProducer.start raises."""
        self._steps.open()
        starting = self._steps.start(self._producer.start)
        try:
            await self._steps.answer_of(starting)
        except BaseException:
            self._steps.close(partial(self._undo, starting))
            raise
        return self

    def _undo(self, starting: Future[TransactionalProducer]) -> None:
        if starting.exception() is None:  # otherwise it has ended itself
            self._producer.shutdown()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for the last steps of blocks, then shuts the producer down. The outcome of a step that takes longer
        than 15 s is UNKNOWN. If the caller is cancelled meanwhile, the steps and the shutdown continue on threads."""
        await self._steps.answer_of(self._steps.close(self._producer.shutdown))
