"""What the plug-ins cost a service on asyncio, against what they cost one with threads.

    python -m benchmarks.asynchronous_block [--blocks 200] [--turns 5] [--at-a-time 10] [--driver psycopg] [--handler]
    python -m benchmarks.asynchronous_block --halves 10000 --at-a-time 20 [--driver psycopg]

PostgreSQL and an embedded broker, each a process of its own. The same business transaction (one INSERT) runs bare and
inside the producer's block, or in a handler (`--handler`), on a pool of threads, then in one loop; in turns. Figures
are processor milliseconds of this process that the plug-in adds to a transaction: medians over the turns. `times` is
the ratio of the loop to the threads. Ends with 1 if that of the block is more than 1.3.

`--halves`: so many blocks at once, over `--at-a-time` connections, at a broker that asks about each half that is open
for a second. Then one is held open until it was asked about, so what is asked is seen. Ends with 1 if another one was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from benchmarks.load.postgres import make_shop
from checkback_consumers import transactional_handler
from checkback_consumers.message import HandedOverMessage
from checkback_producers import AsyncTransactionalProducer, Message, TransactionalProducer, open_producer
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.sql import schema
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.postgres import PostgresServer

INSERT_ORDER = sa.insert(sa.table("orders", sa.column("unique_key"), sa.column("amount")))
TOPIC, KEYS_TOPIC = "ORDERS", "RECONCILER_UNIQUE_KEY"
TIMES_MAX = 1.3
#: Of a block that waits for its place, and of one that waits to be asked about.
WAIT_SECONDS = 600.0


def message() -> Message:
    """An order."""
    return Message(topic=TOPIC, body=b"x" * 512, tags="paid", keys=("order-7",))


def values() -> dict[str, object]:
    """Of one order's row."""
    return {"unique_key": f"{time.perf_counter_ns():032X}", "amount": 100}


def received() -> HandedOverMessage:
    """An order, as a consumer has it."""
    key = str(values()["unique_key"])
    return HandedOverMessage(topic=TOPIC, unique_key=key, body=b"x" * 512, properties={"UNIQ_KEY": key, "TAGS": "paid"})


class Threads:
    """A service whose transactions run on threads."""

    def __init__(self, url: str, producer: TransactionalProducer, at_a_time: int) -> None:
        self._engine = sa.create_engine(url, pool_size=at_a_time, max_overflow=0)
        self._producer = producer
        self._pool = ThreadPoolExecutor(at_a_time)

        @transactional_handler(self._engine, group="by-threads")
        def handle(_received: Any, connection: sa.Connection) -> None:
            connection.execute(INSERT_ORDER, values())

        self._handle = handle

    def run(self, way: str, blocks: int) -> None:
        """So many transactions."""
        act: Callable[[], object] = getattr(self, way)
        for done in [self._pool.submit(act) for _ in range(blocks)]:
            done.result()

    def bare(self) -> None:
        """The business alone."""
        with Session(self._engine) as session, session.begin():
            session.execute(INSERT_ORDER, values())

    def block(self) -> None:
        """Inside the block."""
        with self._producer.transaction(message()) as tx, Session(self._engine) as session, session.begin():
            tx.record(session)
            session.execute(INSERT_ORDER, values())

    def handler(self) -> None:
        """In a handler, on a thread of the client."""
        self._handle.apply(received())


class Loop:
    """The same service on asyncio."""

    def __init__(self, url: str, producer: TransactionalProducer, at_a_time: int, runner: asyncio.Runner) -> None:
        self._engine = create_async_engine(url, pool_size=at_a_time, max_overflow=0)
        self._producer = AsyncTransactionalProducer(producer, database=self._engine, wait_seconds=WAIT_SECONDS)
        self._at_a_time = at_a_time
        self._runner = runner
        self._client = ThreadPoolExecutor(at_a_time)

        @transactional_handler(self._engine, group="by-loop")
        async def handle(_received: Any, connection: AsyncConnection) -> None:
            await connection.execute(INSERT_ORDER, values())

        self._handle = handle

    def __enter__(self) -> Loop:
        self._runner.run(self._producer.__aenter__())
        self._runner.run(self._handle.__aenter__())
        return self

    def __exit__(self, *raised: object) -> None:
        self._runner.run(self._handle.__aexit__(None, None, None))
        self._runner.run(self._producer.__aexit__(None, None, None))
        self._runner.run(self._engine.dispose())

    def run(self, way: str, blocks: int) -> None:
        """So many transactions."""
        side_by_side = self._received(blocks) if way == "handler" else self._side_by_side(getattr(self, way), blocks)
        self._runner.run(side_by_side)

    async def _side_by_side(self, act: Callable[[], Awaitable[None]], blocks: int) -> None:
        left = iter(range(blocks))

        async def one_by_one() -> None:
            for _ in left:
                await act()

        await asyncio.gather(*(one_by_one() for _ in range(self._at_a_time)))

    async def _received(self, blocks: int) -> None:
        """In a handler, which the client's threads wait for."""
        handled: Sequence[Future[Any]] = [self._client.submit(self._handle.apply, received()) for _ in range(blocks)]
        await asyncio.to_thread(wait, handled)
        for one in handled:
            one.result()

    async def bare(self) -> None:
        """The business alone."""
        async with AsyncSession(self._engine) as session, session.begin():
            await session.execute(INSERT_ORDER, values())

    async def block(self) -> None:
        """Inside the block."""
        async with self._producer.transaction(message()) as tx, AsyncSession(self._engine) as session, session.begin():
            await tx.record(session)
            await session.execute(INSERT_ORDER, values())

    def asked_about(self, halves: int) -> tuple[int, int]:
        """Of so many blocks at once: how many halves the broker asks about; and how often about one that is held."""
        return self._runner.run(self._asked_about(halves))

    async def _asked_about(self, halves: int) -> tuple[int, int]:
        asked = Asked()
        await asyncio.gather(*(self.block() for _ in range(halves)))
        async with (
            asyncio.timeout(WAIT_SECONDS),
            self._producer.transaction(message()) as tx,
            AsyncSession(self._engine) as session,
            session.begin(),
        ):
            await tx.record(session)
            while not asked.times[tx.unique_key]:
                await asyncio.sleep(0.05)
        return len(asked.times.keys() - {tx.unique_key}), asked.times[tx.unique_key]


class Asked(logging.Handler):
    """How often the broker has asked about each key."""

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[object] = Counter()
        told = logging.getLogger("checkback_producers.check_answer")
        told.setLevel(logging.INFO)
        told.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Counts it."""
        if record.msg.startswith("check_back_answered") and isinstance(record.args, tuple):
            self.times[record.args[0]] += 1


def milliseconds(face: Threads | Loop, way: str, blocks: int) -> float:
    """Processor time of this process, a transaction."""
    start = time.process_time()
    face.run(way, blocks)
    return (time.process_time() - start) * 1_000 / blocks


def costs(faces: dict[str, Threads | Loop], way: str, options: argparse.Namespace) -> dict[str, float]:
    """What the way adds to the bare transaction on each face, and how many times as much it is in the loop."""
    ways = ("bare", way)
    for face in faces.values():
        for each in ways:
            face.run(each, options.at_a_time * 2)
    turns = [
        {(name, each): milliseconds(face, each, options.blocks) for name, face in faces.items() for each in ways}
        for _ in range(options.turns)
    ]
    added = {name: statistics.median(turn[name, way] - turn[name, "bare"] for turn in turns) for name in faces}
    figures = {f"added_ms_{name}": round(value, 3) for name, value in added.items()}
    return figures | {"times": round(added["loop"] / added["threads"], 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=200, help="of a turn, a way and a face")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--at-a-time", type=int, default=10, help="transactions, threads and connections")
    parser.add_argument("--driver", default="psycopg", help="of the loop: psycopg or asyncpg")
    parser.add_argument("--handler", action="store_true", help="the consumer's handler instead of the block")
    parser.add_argument("--halves", type=int, help="count how many of so many halves the broker asks about")
    options = parser.parse_args()
    properties = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"} if options.halves else {}
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        broker = stack.enter_context(EmbeddedBroker(properties=properties))
        instance = stack.enter_context(ClientInstance(broker.name_servers))
        for topic, queues in ((TOPIC, 4), (KEYS_TOPIC, 16)):
            Admin(instance.client).create_topic(broker.name_servers, topic, queues=queues)
        url = make_shop(server)[0]
        for schema_name in ("outbox", "inbox"):
            schema.upgrade(url, schema_name)
        settings: dict[str, Any] = {"environment": "costs", "name_servers": broker.name_servers, "outbox_url": url}
        runner = stack.enter_context(asyncio.Runner())
        asynchronous = url.replace("+psycopg", f"+{options.driver}")
        loop = stack.enter_context(
            Loop(asynchronous, open_producer(group="by-loop", **settings), options.at_a_time, runner)
        )
        figures: dict[str, Any] = {"driver": options.driver}
        if options.halves:
            asked, held_asked = loop.asked_about(options.halves)
            figures |= {"halves": options.halves, "asked_about": asked, "held_one_asked_about": held_asked}
            is_missed = asked > 0
        else:
            by_threads = stack.enter_context(open_producer(group="by-threads", **settings))
            faces = {"threads": Threads(url, by_threads, options.at_a_time), "loop": loop}
            way = "handler" if options.handler else "block"
            figures |= {"way": way, "blocks": options.blocks, "turns": options.turns} | costs(faces, way, options)
            is_missed = not options.handler and figures["times"] > TIMES_MAX
    print(json.dumps(figures, indent=1))
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
