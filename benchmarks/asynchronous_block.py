"""What the producer's block costs a service on asyncio, against what it costs one with threads.

    python -m benchmarks.asynchronous_block [--blocks 200] [--turns 5] [--at-a-time 10] [--driver psycopg]

PostgreSQL and an embedded broker, each a process of its own. The same business transaction (one INSERT) runs bare and
inside the block; on a pool of threads, then in one loop; in turns. Figures are processor milliseconds of this process
that the block adds to a transaction: medians over the turns. `times` is the ratio of the loop to the threads. Ends with
1 if it is more than 1.3.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from benchmarks.load.postgres import make_shop
from checkback_producers import AsyncTransactionalProducer, Message, TransactionalProducer, open_producer
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.sql import schema
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.postgres import PostgresServer

INSERT_ORDER = sa.insert(sa.table("orders", sa.column("unique_key"), sa.column("amount")))
TOPIC, KEYS_TOPIC = "ORDERS", "RECONCILER_UNIQUE_KEY"
WAYS = ("bare", "block")
TIMES_MAX = 1.3


def message() -> Message:
    """An order."""
    return Message(topic=TOPIC, body=b"x" * 512, tags="paid", keys=("order-7",))


def values() -> dict[str, object]:
    """Of one order's row."""
    return {"unique_key": f"{time.perf_counter_ns():032X}", "amount": 100}


class Threads:
    """A service whose transactions run on threads."""

    def __init__(self, url: str, producer: TransactionalProducer, at_a_time: int) -> None:
        self._engine = sa.create_engine(url, pool_size=at_a_time, max_overflow=0)
        self._producer = producer
        self._pool = ThreadPoolExecutor(at_a_time)

    def run(self, way: str, blocks: int) -> None:
        """So many transactions."""
        act: Callable[[], None] = getattr(self, way)
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


class Loop:
    """The same service on asyncio."""

    def __init__(self, url: str, producer: TransactionalProducer, at_a_time: int, runner: asyncio.Runner) -> None:
        self._engine = create_async_engine(url, pool_size=at_a_time, max_overflow=0)
        self._producer = AsyncTransactionalProducer(producer, database=self._engine)
        self._at_a_time = at_a_time
        self._runner = runner

    def __enter__(self) -> Loop:
        self._runner.run(self._producer.__aenter__())
        return self

    def __exit__(self, *raised: object) -> None:
        self._runner.run(self._producer.__aexit__(None, None, None))
        self._runner.run(self._engine.dispose())

    def run(self, way: str, blocks: int) -> None:
        """So many transactions."""
        self._runner.run(self._side_by_side(getattr(self, way), blocks))

    async def _side_by_side(self, act: Callable[[], Awaitable[None]], blocks: int) -> None:
        left = iter(range(blocks))

        async def one_by_one() -> None:
            for _ in left:
                await act()

        await asyncio.gather(*(one_by_one() for _ in range(self._at_a_time)))

    async def bare(self) -> None:
        """The business alone."""
        async with AsyncSession(self._engine) as session, session.begin():
            await session.execute(INSERT_ORDER, values())

    async def block(self) -> None:
        """Inside the block."""
        async with self._producer.transaction(message()) as tx, AsyncSession(self._engine) as session, session.begin():
            await tx.record(session)
            await session.execute(INSERT_ORDER, values())


def milliseconds(face: Threads | Loop, way: str, blocks: int) -> float:
    """Processor time of this process, a transaction."""
    start = time.process_time()
    face.run(way, blocks)
    return (time.process_time() - start) * 1_000 / blocks


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=200, help="of a turn, a way and a face")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--at-a-time", type=int, default=10, help="transactions, threads and connections")
    parser.add_argument("--driver", default="psycopg", help="of the loop: psycopg or asyncpg")
    options = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        broker = stack.enter_context(EmbeddedBroker())
        instance = stack.enter_context(ClientInstance(broker.name_servers))
        for topic, queues in ((TOPIC, 4), (KEYS_TOPIC, 16)):
            Admin(instance.client).create_topic(broker.name_servers, topic, queues=queues)
        url = make_shop(server)[0]
        schema.upgrade(url, "outbox")
        settings: dict[str, Any] = {"environment": "costs", "name_servers": broker.name_servers, "outbox_url": url}
        by_threads = stack.enter_context(open_producer(group="by-threads", **settings))
        runner = stack.enter_context(asyncio.Runner())
        asynchronous = url.replace("+psycopg", f"+{options.driver}")
        loop = Loop(asynchronous, open_producer(group="by-loop", **settings), options.at_a_time, runner)
        faces = {"threads": Threads(url, by_threads, options.at_a_time), "loop": stack.enter_context(loop)}
        for face in faces.values():
            for way in WAYS:
                face.run(way, options.at_a_time * 2)
        turns = [
            {(name, way): milliseconds(face, way, options.blocks) for name, face in faces.items() for way in WAYS}
            for _ in range(options.turns)
        ]
    added = {name: statistics.median(turn[name, "block"] - turn[name, "bare"] for turn in turns) for name in faces}
    figures: dict[str, Any] = {"driver": options.driver, "blocks": options.blocks, "turns": options.turns}
    figures |= {f"added_ms_{name}": round(value, 3) for name, value in added.items()}
    figures["times"] = round(added["loop"] / added["threads"], 2)
    print(json.dumps(figures, indent=1))
    return int(figures["times"] > TIMES_MAX)


if __name__ == "__main__":
    sys.exit(main())
