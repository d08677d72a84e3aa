"""Handlers that are coroutines: whose loop they run in, how many at a time, and what their end leaves."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import fakeredis
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from checkback_consumers import NativeConsumer, TransactionalConsumer
from checkback_consumers.asynchronous import HandlersLoop
from checkback_consumers.errors import InboxNotReached, TransientError
from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.inbox import InboxAnswer
from checkback_consumers.redis_inbox import RedisInbox
from checkback_consumers.replay_worker import ReplayCounts, ReplayWorker
from reconciler.errors import InvalidValue, UsageError
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from tests.polling import eventually
from tests.unit.consumers.loops import LoopThread
from tests.unit.consumers.messages import (
    KeptRecorder,
    effect_count,
    effects,
    message,
    new_key,
)
from tests.unit.consumers.test_replay_worker import insert_row, row_of


@pytest.fixture
def database(engine: sa.Engine, loop: LoopThread) -> AsyncEngine:
    return loop.kept(create_async_engine(engine.url.set(drivername="sqlite+aiosqlite")))


class Billing:
    """A service whose handler waits where its message says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.threads: set[int] = set()
        self.gates: dict[bytes, asyncio.Event] = {}

    async def bill(self, received: Any, connection: Any) -> None:
        await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))
        self.begun.append(received.unique_key)
        self.threads.add(threading.get_ident())
        if received.body == b"waits":
            await self.gates.setdefault(b"waits", asyncio.Event()).wait()
        if received.body == b"fails":
            raise ZeroDivisionError
        if received.body == b"exits":
            raise SystemExit(1)


def apart(call: Any, *given: Any) -> Any:
    """Calls it on a thread; returns a future."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call, *given)
    pool.shutdown(wait=False)
    return future


def test_its_coroutine_has_its_effect_once_in_the_loop_that_opened_it(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread
) -> None:
    billing, recorder = Billing(), KeptRecorder()
    record_threads: list[int] = []

    class Watched(KeptRecorder):
        def record(self, topic: str, unique_key: str) -> bool:
            record_threads.append(threading.get_ident())
            return recorder.record(topic, unique_key)

    bill = loop.opened(transactional_handler(database, group="billing", recorder=Watched())(billing.bill))
    received = message()
    assert [bill.apply(received), bill.apply(received)] == [InboxAnswer.NEW, InboxAnswer.DUPLICATE]
    assert effect_count(engine, received.unique_key) == 1
    assert (billing.begun, billing.threads) == ([received.unique_key], {loop.thread_id})
    assert record_threads == [threading.get_ident()] * 2, "the commit set is not written in the loop"
    assert recorder.recorded == [("ORDERS", received.unique_key)] * 2


def sessions(database: AsyncEngine) -> Any:
    return async_sessionmaker(database)


def of_each_message(database: AsyncEngine) -> Any:
    return lambda _message: database


async def awaited(database: AsyncEngine) -> AsyncConnection:
    return await database.connect()


WAYS: dict[str, Callable[[AsyncEngine], Any]] = {
    "AsyncEngine": lambda database: database,
    "async_sessionmaker": sessions,
    "function of the message": of_each_message,
    "connect": lambda database: database.connect,
    "function that is awaited": lambda database: lambda: awaited(database),
}


@pytest.mark.parametrize("way", list(WAYS))
def test_any_way_to_a_connection_has_its_effect_and_is_closed(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread, way: str
) -> None:
    bill = loop.opened(transactional_handler(WAYS[way](database), group="billing")(Billing().bill))
    paid, failing = message(), message(body=b"fails")
    assert bill(paid) is ConsumeStatus.CONSUME_SUCCESS
    assert bill(failing) is ConsumeStatus.RECONSUME_LATER
    assert (effect_count(engine, paid.unique_key), effect_count(engine, failing.unique_key)) == (1, 0)
    assert database.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_a_session_is_what_the_handler_gets(engine: sa.Engine, database: AsyncEngine, loop: LoopThread) -> None:
    kinds: list[type] = []

    async def handler(_received: Any, session: AsyncSession) -> bool:
        kinds.append(type(session))
        return False

    bill = loop.opened(transactional_handler(async_sessionmaker(database), group="billing")(handler))
    assert bill(message()) is ConsumeStatus.RECONSUME_LATER, "it has answered False"
    assert kinds == [AsyncSession]


def test_a_batch_shares_one_transaction_and_its_order(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread
) -> None:
    commits: list[object] = []
    sa.event.listen(database.sync_engine, "commit", commits.append)
    billing = Billing()
    bill = loop.opened(transactional_handler(database, group="billing", is_batched=True)(billing.bill))
    batch = [message() for _ in range(3)]
    assert bill.listener(batch) is ConsumeStatus.CONSUME_SUCCESS
    assert (billing.begun, len(commits)) == ([one.unique_key for one in batch], 1)
    split = [message(), message(body=b"fails"), message()]
    assert bill.listener(split) == FailedAt(1)
    assert [effect_count(engine, one.unique_key) for one in (*batch, *split)] == [1, 1, 1, 1, 0, 0]


def test_it_is_refused_where_it_is_not_open_and_where_it_would_block_a_loop(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread
) -> None:
    bill = transactional_handler(database, group="billing")(Billing().bill)
    with pytest.raises(UsageError, match="not open"):
        bill.apply(message())
    with pytest.raises(UsageError, match="not open"):
        TransactionalConsumer(bill, name_servers="127.0.0.1:1", subscriptions={"ORDERS": "*"}).start()
    loop.opened(bill)

    async def elsewhere() -> None:
        with pytest.raises(UsageError, match="open already"):
            await bill.__aenter__()
        with pytest.raises(UsageError, match="would block the loop"):
            bill.apply(message())

    asyncio.run(elsewhere())
    assert bill(message()) is ConsumeStatus.CONSUME_SUCCESS
    loop.closed(bill)
    with pytest.raises(UsageError, match="not open"):
        bill.apply(message())
    assert effect_count(engine) == 1


def test_a_handler_that_was_opened_before_a_fork_is_refused_in_the_child(
    database: AsyncEngine, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    bill = loop.opened(transactional_handler(database, group="billing")(Billing().bill))
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(UsageError, match="before a fork"):
        bill.apply(message())
    monkeypatch.undo()
    assert bill(message()) is ConsumeStatus.CONSUME_SUCCESS


def test_one_loop_after_another_may_open_it(engine: sa.Engine) -> None:
    """As tests do, and a service that serves again."""
    url = engine.url.set(drivername="sqlite+aiosqlite")
    bill = transactional_handler(lambda: create_async_engine(url, poolclass=sa.NullPool).connect(), group="billing")(
        Billing().bill
    )

    async def serve() -> ConsumeStatus:
        async with bill:
            return await asyncio.to_thread(bill, message())

    assert [asyncio.run(serve()) for _ in range(2)] == [ConsumeStatus.CONSUME_SUCCESS] * 2
    assert effect_count(engine) == 2


def test_running_max_calls_run_at_a_time(loop: LoopThread) -> None:
    calls = HandlersLoop(running_max=2)
    gate, running, most = asyncio.Event(), [0], [0]

    async def work() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await gate.wait()
        running[0] -= 1

    async def opened() -> None:
        calls.open()

    async def let_go() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()

    loop.run(opened())
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(calls.run, work) for _ in range(8)]
        eventually(lambda: calls._opened is not None and len(calls._opened.tasks) == 8, within_seconds=60)
        loop.run(let_go())
        for answer in answers:
            answer.result(60)
    assert most == [2]
    loop.run(calls.close())


def test_without_running_max_there_are_as_many_as_the_pool_gives_connections(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/x.db"
    pooled = create_async_engine(url, pool_size=3, max_overflow=4)
    unbounded = create_async_engine(url, pool_size=3, max_overflow=-1)
    given: dict[Any, int | None] = {pooled: None, async_sessionmaker(pooled): None, unbounded: None, pooled.connect: 5}
    handlers = [
        transactional_handler(database, group="billing", running_max=most)(Billing().bill)
        for database, most in given.items()
    ]
    assert [one._loop._running_max for one in handlers if one._loop is not None] == [7, 7, 20, 5]
    with pytest.raises(InvalidValue, match="running_max = 0"):
        transactional_handler(pooled, group="billing", running_max=0)(Billing().bill)


def test_handlers_of_one_pool_wait_for_its_places_and_not_for_its_connections(
    engine: sa.Engine, loop: LoopThread
) -> None:
    url = engine.url.set(drivername="sqlite+aiosqlite")
    database = loop.kept(create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=0))
    billing = Billing()
    bills = [
        loop.opened(transactional_handler(given, group=group)(billing.bill))
        for group, given in (("billing", database), ("mailing", async_sessionmaker(database)))
    ]
    first = apart(bills[0].apply, message(body=b"waits"))
    eventually(lambda: billing.begun, within_seconds=60)
    second = apart(bills[1].apply, message())
    tasks = bills[1]._loop._opened.tasks  # type: ignore[union-attr]  # it is open
    eventually(lambda: tasks, within_seconds=60)

    async def look_then_let_go() -> int:
        for _ in range(20):  # who waited for a connection would have failed at once
            await asyncio.sleep(0)
        billing.gates[b"waits"].set()
        return len(billing.begun)

    assert loop.run(look_then_let_go()) == 1
    assert [one.result(60) for one in (first, second)] == [InboxAnswer.NEW] * 2


def waiting(bill: TransactionalHandler, billing: Billing) -> tuple[Any, Any]:
    """A message whose handler has begun, and the answer to it."""
    received = message(body=b"waits")
    answer = apart(bill, received)
    eventually(lambda: received.unique_key in billing.begun, within_seconds=60)
    return received, answer


def test_what_runs_at_the_end_is_cancelled_rolled_back_and_comes_again(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread
) -> None:
    billing = Billing()
    bill = loop.opened(transactional_handler(database, group="billing")(billing.bill))
    received, answer = waiting(bill, billing)
    loop.closed(bill)
    assert answer.result(60) is ConsumeStatus.RECONSUME_LATER
    assert effect_count(engine) == 0
    assert database.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    loop.opened(bill)
    billing.gates[b"waits"].set()
    assert bill.apply(received) is InboxAnswer.NEW
    assert effect_count(engine, received.unique_key) == 1


def test_what_comes_while_the_handler_ends_is_not_begun(
    database: AsyncEngine, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was handed to the loop, which has not taken it yet."""
    billing = Billing()
    bill = loop.opened(transactional_handler(database, group="billing")(billing.bill))
    answers = []
    hand, is_handed = loop.loop.call_soon_threadsafe, threading.Event()

    def noted(*call: Any, **context: Any) -> asyncio.Handle:
        handed = hand(*call, **context)
        is_handed.set()
        return handed

    async def end() -> None:
        monkeypatch.setattr(loop.loop, "call_soon_threadsafe", noted)
        answers.append(apart(bill.apply, message()))
        assert is_handed.wait(60)  # the loop stands still here
        await bill.__aexit__(None, None, None)

    loop.run(end())
    loop._handlers.clear()
    with pytest.raises(InboxNotReached, match="closed before"):
        answers[0].result(60)
    assert billing.begun == []


def test_a_loop_that_was_closed_is_no_fault_of_the_message(database: AsyncEngine) -> None:
    bill = transactional_handler(database, group="billing")(Billing().bill)
    with asyncio.Runner() as runner:
        runner.run(bill.__aenter__())
    with pytest.raises(InboxNotReached, match="is closed"):
        bill.apply(message())


def test_a_handler_that_exits_ends_neither_the_loop_nor_its_message(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread
) -> None:
    bill = loop.opened(transactional_handler(database, group="billing")(Billing().bill))
    with pytest.raises(TransientError, match="SystemExit"):
        bill.apply(message(body=b"exits"))
    assert bill(message()) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine) == 1


def test_a_handler_that_cancels_itself_has_its_message_again(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread
) -> None:
    async def handler(_received: Any, connection: AsyncConnection) -> None:
        await connection.execute(effects.insert().values(unique_key="one", amount=1))
        raise asyncio.CancelledError

    bill = loop.opened(transactional_handler(database, group="billing")(handler))
    with pytest.raises(TransientError, match="was cancelled"):
        bill.apply(message())
    assert effect_count(engine) == 0


def redis_inbox() -> RedisInbox:
    return RedisInbox(fakeredis.FakeRedis(), environment="test")


@pytest.mark.parametrize("kind", ["sessionmaker", "RedisInbox", "AsyncSession", "async function of a message"])
def test_a_database_that_is_not_awaited_is_refused(engine: sa.Engine, database: AsyncEngine, kind: str) -> None:
    async def of_message(_message: Any) -> AsyncEngine:
        return database

    given: Any = {
        "sessionmaker": sessionmaker(engine),
        "RedisInbox": redis_inbox(),
        "AsyncSession": AsyncSession(database),
        "async function of a message": of_message,
    }[kind]
    with pytest.raises(InvalidValue, match="database = ") as refused:
        transactional_handler(given, group="billing")(Billing().bill)
    assert len(str(refused.value).splitlines()) == 1


def test_a_function_that_returns_a_synchronous_connection_applies_nothing(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread
) -> None:
    bill = loop.opened(transactional_handler(lambda: engine.connect(), group="billing")(Billing().bill))
    with pytest.raises(UsageError, match="no asynchronous connection"):
        bill.apply(message())
    assert effect_count(engine) == 0


def test_a_synchronous_handler_has_nothing_to_open(engine: sa.Engine, loop: LoopThread) -> None:
    bill = transactional_handler(engine, group="billing")(lambda _message, _connection: None)
    with pytest.raises(UsageError, match="is synchronous"):
        loop.run(bill.__aenter__())


def test_rocketmq_client_python_has_threads_only(database: AsyncEngine) -> None:
    bill = transactional_handler(database, group="billing", topics="ORDERS")(Billing().bill)
    with pytest.raises(InvalidValue, match="threads only"):
        NativeConsumer(bill, name_servers="127.0.0.1:1")


def worker_of(engine: sa.Engine, bill: TransactionalHandler) -> ReplayWorker:
    return ReplayWorker(bill, environment="test", topics="ORDERS", queue=HandOverRows(engine))


def test_a_hand_over_takes_effect_in_the_loop(engine: sa.Engine, database: AsyncEngine, loop: LoopThread) -> None:
    billing, key = Billing(), new_key()
    bill = transactional_handler(database, group="billing")(billing.bill)
    worker = worker_of(engine, bill)
    insert_row(engine, key)
    with pytest.raises(UsageError, match="not open"):
        worker.run_once()
    assert (row_of(engine, key).state, row_of(engine, key).attempts) == ("OPEN", 0), "that was not its fault"
    loop.opened(bill)
    assert worker.run_once() == ReplayCounts(applied=1)
    assert (row_of(engine, key).state, effect_count(engine, key)) == ("DONE", 1)
    assert billing.threads == {loop.thread_id}


def test_a_hand_over_that_was_cancelled_is_tried_again(
    engine: sa.Engine, database: AsyncEngine, loop: LoopThread
) -> None:
    from tests.unit.consumers.test_hand_over_message import stored

    billing, key = Billing(), new_key()
    bill = loop.opened(transactional_handler(database, group="billing")(billing.bill))
    insert_row(engine, key, stored=stored(unique_key=key, body=b"waits"))
    done = apart(worker_of(engine, bill).run_once)
    eventually(lambda: billing.begun == [key], within_seconds=60)
    loop.closed(bill)
    assert done.result(60) == ReplayCounts(postponed=1)
    assert (row_of(engine, key).state, effect_count(engine)) == ("OPEN", 0)


class SlowConsumer(TransactionalConsumer):
    """Its start is answered when the test says so."""

    def __init__(self, *handlers: Any, **options: Any) -> None:
        super().__init__(*handlers, **options)
        self.begun, self.may_start, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.consumer = SimpleNamespace(start=self._start, shutdown=self._shutdown)  # type: ignore[assignment]
        self.order: list[str] = []
        self._lock = threading.Lock()

    def _start(self) -> None:
        with self._lock:
            self.begun.set()
            assert self.may_start.wait(60)
            self.order.append("start")

    def _shutdown(self) -> bool:
        with self._lock:
            self.order.append("shutdown")
        self.ended.set()
        return True


def test_a_consumer_whose_start_was_cancelled_is_shut_down_once_it_has_started(engine: sa.Engine) -> None:
    bill = transactional_handler(engine, group="billing", topics="ORDERS")(lambda _message, _connection: None)
    consumer = SlowConsumer(bill, name_servers="127.0.0.1:1")

    async def serve() -> None:
        task = asyncio.create_task(consumer.__aenter__())
        await asyncio.to_thread(consumer.begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(serve())
    consumer.may_start.set()
    assert consumer.ended.wait(60)
    assert consumer.order == ["start", "shutdown"]


class Halfway:
    """A service whose handler is struck behind the first half of its effect, and returns as if it had done all: by
    `except BaseException` of its own, or of a library."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def bill(self, received: Any, connection: AsyncConnection) -> None:
        await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))
        self.begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await self.may_return.wait()


async def _tasks_cancelled(bill: TransactionalHandler, _halfway: Halfway) -> None:
    """As the handler of a signal does it in many services."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def _closed(bill: TransactionalHandler, _halfway: Halfway) -> None:
    await bill.__aexit__(None, None, None)


async def _closed_and_opened_again(bill: TransactionalHandler, halfway: Halfway) -> None:
    """Before what was cancelled has returned."""
    halfway.may_return.clear()
    closing = asyncio.create_task(bill.__aexit__(None, None, None))
    await asyncio.sleep(0)
    await bill.__aenter__()
    halfway.may_return.set()
    await closing


@pytest.mark.parametrize(
    ("strike", "is_open"), [(_tasks_cancelled, True), (_closed, False), (_closed_and_opened_again, True)]
)
def test_a_call_that_swallows_its_cancellation_leaves_no_half_of_an_effect(
    engine: sa.Engine,
    database: AsyncEngine,
    loop: LoopThread,
    strike: Callable[[TransactionalHandler, Halfway], Coroutine[Any, Any, None]],
    is_open: bool,
) -> None:
    halfway = Halfway()
    bill = transactional_handler(database, group="billing")(halfway.bill)
    loop.run(bill.__aenter__())
    received = message()
    answer = apart(bill.apply, received)
    assert halfway.begun.wait(60)
    loop.run(strike(bill, halfway))
    with pytest.raises(TransientError, match="cancelled"):
        answer.result(60)
    assert effect_count(engine, received.unique_key) == 0
    if is_open:
        loop.run(bill.__aexit__(None, None, None))


async def _asyncio_timeout() -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def _anyio_scope() -> None:
    with anyio.move_on_after(0):
        await anyio.Event().wait()


async def _task_group() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            await asyncio.Event().wait()


@pytest.mark.parametrize("gives_up", [_asyncio_timeout, _anyio_scope, _task_group])
def test_a_handler_that_gives_something_up_and_goes_on_has_its_effect(
    engine: sa.Engine,
    database: AsyncEngine,
    loop: LoopThread,
    gives_up: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Its task was cancelled by what it gave up, which took that back."""

    async def bill(received: Any, connection: AsyncConnection) -> None:
        await gives_up()
        await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))

    received = message()
    handler = loop.opened(transactional_handler(database, group="billing")(bill))
    assert handler.apply(received) is InboxAnswer.NEW
    assert effect_count(engine, received.unique_key) == 1


def test_a_call_is_told_of_a_library_that_takes_no_cancellation_back(database: AsyncEngine, loop: LoopThread) -> None:
    """Aiohttp up to 3.10.7, async_timeout up to 4.0.2: nothing tells that from half an effect."""

    async def bill(received: Any, connection: AsyncConnection) -> None:
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    handler = loop.opened(transactional_handler(database, group="billing")(bill))
    with pytest.raises(TransientError, match=r"cancelled .* cancelling\(\) is 1 .* aiohttp >= 3\.10\.8"):
        handler.apply(message())


def test_a_call_that_a_loop_never_took_comes_again(database: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was handed over between the last turn of the loop and its close."""
    bill = transactional_handler(database, group="billing")(Billing().bill)
    is_handed = threading.Event()
    with asyncio.Runner() as runner:
        runner.run(bill.__aenter__())
        monkeypatch.setattr(runner.get_loop(), "call_soon_threadsafe", lambda *_call: is_handed.set())
        answer = apart(bill.apply, message())
        assert is_handed.wait(60)
        monkeypatch.undo()
    with pytest.raises(TransientError, match="has ended"):
        answer.result(60)
