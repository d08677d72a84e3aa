"""A block that is cancelled at each of its awaits in turn: nothing is lost, no connection is out, no lock is held."""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.pool import NullPool
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from checkback_producers import AsyncTransactionalProducer, Outcome, TransactionalProducer
from tests.integration.producers.faces import async_engine
from tests.polling import eventually
from tests.unit.producers.world import World, message

Strike = Callable[[], object]
#: More awaits than a block has on any driver.
_AWAITS_MAX = 200
#: Of this process, for one block that is cancelled: it waits for nothing, and spins for nothing.
_PROCESSOR_SECONDS_MAX = 1.0
_HELD = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND state <> 'idle' AND pid <> pg_backend_pid()",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx",
}


@types.coroutine
def struck(block: Coroutine[Any, Any, None], at: int, strike: Strike, *, again: bool) -> Generator[Any, Any, bool]:
    """Runs the block and strikes at its await number `at` (`again`: at the next one, too); False: it has fewer."""
    awaits = 0
    thrown: BaseException | None = None
    while True:
        try:
            waited_for = block.send(None) if thrown is None else block.throw(thrown)
        except StopIteration:
            return awaits >= at
        awaits += 1
        if awaits == at or (again and awaits == at + 1):
            strike()
        thrown = None
        try:
            yield waited_for
        except BaseException as error:  # passed on into the block
            thrown = error


async def in_task(block: Coroutine[Any, Any, None], at: int, *, again: bool) -> bool:
    async def run() -> bool:
        task = asyncio.current_task()
        assert task is not None
        return await struck(block, at, task.cancel, again=again)

    task = asyncio.create_task(run())
    try:
        return await task
    except asyncio.CancelledError:
        return True


async def cancelled_once(block: Coroutine[Any, Any, None], at: int) -> bool:
    return await in_task(block, at, again=False)


async def cancelled_twice(block: Coroutine[Any, Any, None], at: int) -> bool:
    return await in_task(block, at, again=True)


async def timed_out(block: Coroutine[Any, Any, None], at: int) -> bool:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:
            return await struck(block, at, lambda: limit.reschedule(loop.time()), again=False)
    except TimeoutError:
        return True


async def scope_cancelled(block: Coroutine[Any, Any, None], at: int) -> bool:
    with anyio.CancelScope() as scope:
        return await struck(block, at, scope.cancel, again=False)
    return True


async def disconnected(block: Coroutine[Any, Any, None], at: int) -> bool:
    """In a response, behind a middleware, whose client goes away: Starlette cancels the scope that it is in."""
    is_gone, told = asyncio.Event(), [True]

    async def body() -> AsyncIterator[bytes]:
        yield b"begun"
        told[0] = await struck(block, at, is_gone.set, again=False)

    async def answer(_request: Request) -> Response:
        return StreamingResponse(body())

    class PassedOn(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            return await call_next(request)  # type: ignore[no-any-return]

    request = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        if (first := next(request, None)) is not None:
            return first
        await is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(_part: Any) -> None:
        pass

    service = Starlette(routes=[Route("/", answer)], middleware=[Middleware(PassedOn)])
    about = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    await service({**about, "asgi": {"version": "3.0", "spec_version": "2.0"}}, receive, send)
    return told[0]


STRIKES = (cancelled_once, cancelled_twice, timed_out, scope_cancelled, disconnected)


@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: strike.__name__)
def test_a_block_that_is_cancelled_at_any_await_loses_nothing_and_holds_nothing(
    database_url: str, strike: Callable[[Coroutine[Any, Any, None], int], Coroutine[Any, Any, bool]]
) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("no server keeps a connection or a lock of it")
    world = World(database_url)
    try:
        asyncio.run(_strike_each(world, strike))
    finally:
        world.close()


async def _strike_each(world: World, strike: Callable[..., Coroutine[Any, Any, bool]]) -> None:
    engine = async_engine(world.url, pool_size=2, max_overflow=0)
    struck_blocks = []
    async with AsyncTransactionalProducer(world.made(), blocks_max=2) as producer:
        for at in range(1, _AWAITS_MAX):
            tx = producer.transaction(message())
            struck_blocks.append(tx)
            start = time.process_time()
            is_struck = await strike(_business(world, tx, engine), at)
            assert time.process_time() - start < _PROCESSOR_SECONDS_MAX, at
            if not is_struck:
                break
        else:
            pytest.fail("the block never ended without a strike")
    _judge(world, struck_blocks)
    assert engine.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    eventually(lambda: _held(world) == 0, within_seconds=20)
    await engine.dispose()


def _judge(world: World, struck_blocks: Sequence[Any]) -> None:
    """What was committed was told so; nothing else was."""
    assert len(struck_blocks) > 5
    for tx in struck_blocks:
        ends = [outcome for key, outcome in world.halves.ended if key == tx.unique_key]
        is_committed = world.did_business(tx.unique_key)
        expected = {(Outcome.COMMIT,)} if is_committed else {(Outcome.ROLLBACK,), ()}
        assert tuple(ends) in expected, (struck_blocks.index(tx), ends, is_committed, tx.reason)


def test_a_block_in_which_asyncio_run_ends_loses_nothing_and_holds_nothing(database_url: str) -> None:
    """Whoever owns the producer does not wait for its end: what the block has left goes on without its loop."""
    if database_url.startswith("sqlite"):
        pytest.skip("no server keeps a connection or a lock of it")
    world = World(database_url)
    try:
        struck_blocks: list[Any] = []
        for at in range(1, _AWAITS_MAX):
            made = world.made()
            is_struck = asyncio.run(_run_ends(world, made, at, struck_blocks))
            eventually(lambda made=made: is_at_rest(made), within_seconds=20)  # type: ignore[misc]
            made.shutdown()
            if not is_struck:
                break
        else:
            pytest.fail("the block never ended without a strike")
        _judge(world, struck_blocks)
        eventually(lambda: _held(world) == 0, within_seconds=20)
    finally:
        world.close()


def is_at_rest(made: TransactionalProducer) -> bool:
    """Whether each half that was begun has come to its end."""
    counted = made.counts.as_dict()
    return counted["halves"] == sum(counted[name] for name in ("committed", "rolled_back", "unknown"))


async def _run_ends(world: World, made: TransactionalProducer, at: int, struck_blocks: list[Any]) -> bool:
    engine = async_engine(world.url, poolclass=NullPool)
    producer = await AsyncTransactionalProducer(made, blocks_max=2).__aenter__()
    tx = producer.transaction(message())
    struck_blocks.append(tx)
    has_struck = asyncio.Event()

    async def block_that_is_struck() -> bool:  # a task is a coroutine, since Python 3.12
        return await struck(_business(world, tx, engine), at, has_struck.set, again=False)

    block = asyncio.create_task(block_that_is_struck())
    waiting = asyncio.create_task(has_struck.wait())
    await asyncio.wait([block, waiting], return_when=asyncio.FIRST_COMPLETED)
    return not block.done() or block.result()


async def _business(world: World, tx: Any, engine: AsyncEngine) -> None:
    async with tx, AsyncSession(engine) as session, session.begin():
        await tx.record(session)
        await session.execute(sa.insert(world.business).values(name=tx.unique_key))


def _held(world: World) -> int:
    dialect = "mysql" if world.engine.dialect.name == "mariadb" else world.engine.dialect.name
    with world.engine.connect() as connection:
        return int(connection.exec_driver_sql(_HELD[dialect]).scalar_one())
