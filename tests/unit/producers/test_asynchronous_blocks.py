"""The asynchronous producer by itself: places, loops and processes, and what cancelled blocks leave for its end."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from checkback_producers import AsyncTransaction, AsyncTransactionalProducer, NativeProducer, Outcome, apart
from checkback_producers.errors import InvalidValue, NoPlace, UsageError
from checkback_producers.ports import SentHalf
from reconciler.policy.evidence import SendAnswer
from reconciler.rocketmq.wire.message import Message
from tests.left_threads import ended_threads
from tests.polling import eventually
from tests.unit.producers.world import MemoryHalves, World, message


class SlowHalves(MemoryHalves):
    """An END is answered when the test says so; then it still waits a moment for a shutdown that comes too early."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []
        self.may_end = threading.Event()
        self._is_shut = threading.Event()

    def end(self, half: SentHalf, outcome: Outcome) -> SendAnswer:
        assert self.may_end.wait(60)
        self._is_shut.wait(0.2)
        self.order.append("end")
        return super().end(half, outcome)

    def shutdown(self) -> None:
        self.order.append("shutdown")
        self._is_shut.set()
        super().shutdown()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """An executor that nobody ends waits until its producer is collected."""
    with ended_threads():
        yield


@pytest.fixture
def halves(world: World) -> SlowHalves:
    """Those of the world's producers."""
    world.halves = made = SlowHalves()
    return made


async def cancelled(producer: AsyncTransactionalProducer, blocks: int = 1) -> list[AsyncTransaction]:
    """Blocks that were cancelled before their `record`: each has an END ROLLBACK to send."""
    begun = asyncio.Barrier(blocks + 1)

    async def run(tx: AsyncTransaction) -> None:
        async with tx:
            await begun.wait()
            await anyio.sleep_forever()

    made = [producer.transaction(message()) for _ in range(blocks)]
    tasks = [asyncio.create_task(run(tx)) for tx in made]
    await begun.wait()
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in ended] == [asyncio.CancelledError] * blocks
    return made


@pytest.mark.parametrize("is_of_an_engine", [False, True])
def test_a_block_without_a_place_sends_nothing(world: World, is_of_an_engine: bool) -> None:
    engine = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none", pool_size=1, max_overflow=0)
    places: dict[str, Any] = {"database": engine} if is_of_an_engine else {"blocks_max": 1}

    async def serve() -> None:
        made = world.made(without_outbox=True)
        async with AsyncTransactionalProducer(made, wait_seconds=0.05, **places) as producer:
            async with producer.transaction(message()):
                with pytest.raises(NoPlace, match="1 blocks"):
                    await producer.transaction(message()).__aenter__()
                assert len(world.halves.sent) == 1
            async with producer.transaction(message()):
                assert len(world.halves.sent) == 2

    asyncio.run(serve())


def test_blocks_wait_for_a_place(world: World) -> None:
    together: list[int] = []

    async def serve() -> None:
        async with AsyncTransactionalProducer(world.made(without_outbox=True), blocks_max=2) as producer:

            async def block() -> None:
                async with producer.transaction(message()):
                    together.append(len(world.halves.sent) - len(world.halves.ended))
                    await anyio.lowlevel.checkpoint()

            await asyncio.gather(*(block() for _ in range(8)))

    asyncio.run(serve())
    assert len(together) == 8
    assert max(together) <= 2


def test_a_producer_is_refused_outside_its_loop_its_process_and_its_time(world: World) -> None:
    producer = AsyncTransactionalProducer(world.made(without_outbox=True))
    with pytest.raises(UsageError, match="not started"):
        producer.transaction(message())
    with asyncio.Runner() as runner, asyncio.Runner() as other:
        runner.run(producer.__aenter__())
        tx = producer.transaction(message())
        with pytest.raises(UsageError, match="loop that opened it"):
            other.run(tx.__aenter__())
        with warnings.catch_warnings(action="ignore"):  # a process that has threads should not fork: services do
            child = os.fork()
        if child == 0:
            try:
                tx.__aenter__().send(None)
            except UsageError as error:
                os._exit(0 if "before a fork" in str(error) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        runner.run(producer.__aexit__(None, None, None))
        with pytest.raises(UsageError, match="not open"):
            runner.run(tx.__aenter__())
        with pytest.raises(UsageError, match="opened once"):
            runner.run(producer.__aenter__())
    assert world.halves.sent == []


@pytest.mark.parametrize("wrong", [{"blocks_max": 0}, {"wait_seconds": 0}])
def test_settings_without_a_meaning_are_refused(world: World, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        AsyncTransactionalProducer(world.made(), **wrong)


def test_the_producer_over_the_library_in_c_is_refused() -> None:
    with pytest.raises(InvalidValue, match="threads only"):
        AsyncTransactionalProducer(NativeProducer.__new__(NativeProducer))


def test_the_end_of_the_producer_waits_for_what_a_cancelled_block_left(world: World, halves: SlowHalves) -> None:
    async def serve() -> AsyncTransaction:
        async with AsyncTransactionalProducer(world.made()) as producer:
            (tx,) = await cancelled(producer)
            assert halves.ended == []
            halves.may_end.set()
        return tx

    tx = asyncio.run(serve())
    assert halves.order == ["end", "shutdown"]
    assert halves.ended == [(tx.unique_key, Outcome.ROLLBACK)]


def test_what_the_end_of_the_producer_does_not_wait_for_is_unknown(
    world: World, halves: SlowHalves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(apart, "THREADS_MAX", 1)
    made = world.made()

    async def serve() -> list[AsyncTransaction]:
        async with AsyncTransactionalProducer(made, blocks_max=2) as producer:
            return await cancelled(producer, 2)

    first, second = asyncio.run(serve())
    assert (second.outcome, second.reason) == (
        Outcome.UNKNOWN,
        "the producer was closed before the outcome could be read",
    )
    assert made.counts.as_dict()["unknown"] == 1
    halves.may_end.set()
    eventually(lambda: halves.ended == [(first.unique_key, Outcome.ROLLBACK)], within_seconds=20)


def test_what_asyncio_run_cancels_is_ended_though_the_loop_is_closed(world: World, halves: SlowHalves) -> None:
    made = world.made()

    async def serve() -> AsyncTransactionalProducer:
        producer = await AsyncTransactionalProducer(made).__aenter__()
        begun = asyncio.Event()

        async def work() -> None:
            async with producer.transaction(message()):
                begun.set()
                await anyio.sleep_forever()

        task = asyncio.create_task(work())
        await begun.wait()
        assert not task.done()
        return producer

    left = asyncio.run(serve())
    assert halves.ended == []
    halves.may_end.set()
    eventually(lambda: [outcome for _, outcome in halves.ended] == [Outcome.ROLLBACK], within_seconds=20)
    left._steps.close(made.shutdown).result(20)  # nobody else ends its threads


def test_a_block_in_a_cancelled_scope_waits_for_nothing(world: World, halves: SlowHalves) -> None:
    """Such a scope cancels whatever waits in it, again and again: 46 103 times in 0.3 s were seen."""

    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with AsyncTransactionalProducer(world.made()) as producer:
            with anyio.CancelScope() as scope:
                try:
                    async with producer.transaction(message()):
                        scope.cancel()
                        await anyio.sleep_forever()
                finally:
                    assert task.cancelling() == 1
                    assert halves.ended == []
            halves.may_end.set()

    asyncio.run(serve())
    assert halves.order == ["end", "shutdown"]


def test_a_block_in_a_response_whose_client_disconnects_is_ended(world: World) -> None:
    async def serve() -> None:
        async with AsyncTransactionalProducer(world.made()) as producer:

            async def stream() -> AsyncIterator[bytes]:
                async with producer.transaction(message()):
                    yield b"begun"
                    await anyio.sleep_forever()

            async def answer(_request: Request) -> Response:
                return StreamingResponse(stream())

            class PassedOn(BaseHTTPMiddleware):
                async def dispatch(self, request: Request, call_next: Any) -> Response:
                    return await call_next(request)  # type: ignore[no-any-return]

            service = Starlette(routes=[Route("/", answer)], middleware=[Middleware(PassedOn)])
            is_begun = asyncio.Event()
            request = iter([{"type": "http.request", "body": b"", "more_body": False}])

            async def receive() -> dict[str, Any]:
                if (first := next(request, None)) is not None:
                    return first
                await is_begun.wait()
                return {"type": "http.disconnect"}

            async def send(part: Any) -> None:
                if part.get("body"):
                    is_begun.set()

            about = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
            await service({**about, "asgi": {"version": "3.0", "spec_version": "2.0"}}, receive, send)

    asyncio.run(serve())
    assert [outcome for _, outcome in world.halves.ended] == [Outcome.ROLLBACK]


def test_a_half_waits_for_no_new_connection_and_a_block_for_none_that_is_out(world: World, tmp_path: Path) -> None:
    database = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/pool.db", pool_size=2, max_overflow=0)
    opened: list[object] = []
    event.listen(database.sync_engine, "connect", lambda connection, _record: opened.append(connection))
    at_halves: list[int] = []

    class Noting(MemoryHalves):
        def send_half(self, message: Message) -> SentHalf:
            at_halves.append(len(opened))
            return super().send_half(message)

    world.halves = Noting()

    async def serve() -> None:
        async with AsyncTransactionalProducer(world.made(without_outbox=True), database=database) as producer:
            for _ in range(2):
                async with producer.transaction(message()), database.connect(), producer.transaction(message()):
                    pass
            async with database.connect(), database.connect(), producer.transaction(message()):
                pass  # a block of who has read before it
        await database.dispose()

    asyncio.run(serve())
    assert at_halves == [1, 2, 2, 2, 2]


def test_a_block_that_is_cancelled_while_it_connects_sends_nothing_and_gives_its_place_back(world: World) -> None:
    async def serve() -> None:
        connecting = asyncio.Event()

        async def connect() -> Any:
            if connecting.is_set():
                raise OSError("connection refused")
            connecting.set()
            await anyio.sleep_forever()

        database = create_async_engine("postgresql+psycopg://", async_creator=connect, pool_size=1, max_overflow=0)
        made = world.made(without_outbox=True)
        async with AsyncTransactionalProducer(made, database=database, wait_seconds=0.05) as producer:
            entering = asyncio.create_task(producer.transaction(message()).__aenter__())
            await connecting.wait()
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            assert world.halves.sent == []
            async with producer.transaction(message()):
                assert len(world.halves.sent) == 1

    asyncio.run(serve())
