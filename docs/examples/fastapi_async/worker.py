"""Bills orders until SIGTERM: a process of its own, beside the web process."""

import asyncio
import json
import os
import signal

import prometheus_client
import sqlalchemy as sa
from orders import DRIVERS
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from tables import Bill

from checkback_consumers import (
    CommitRecorder,
    ConsumedMessage,
    TransactionalConsumer,
    TransactionalHandler,
    transactional_handler,
)
from checkback_consumers.metrics import register_metrics


def billing(database: AsyncEngine, recorder: CommitRecorder) -> TransactionalHandler:
    """The handler; a message that it raises for comes again."""

    @transactional_handler(async_sessionmaker(database), group="billing", topics="ORDERS", recorder=recorder)
    async def bill(message: ConsumedMessage, session: AsyncSession) -> None:
        session.add(Bill(number=json.loads(message.body)["order"]))

    return bill


async def work() -> None:
    """Until SIGTERM."""
    url = sa.make_url(os.environ["DATABASE_URL"])
    database = create_async_engine(url.set(drivername=DRIVERS[url.get_backend_name()]))
    recorder = CommitRecorder.open(
        os.environ["REDIS_URL"], environment="production", group="billing", topics=["ORDERS"], shards=16
    )
    bill = billing(database, recorder)
    register_metrics(prometheus_client.REGISTRY, handlers=[bill], recorders=[recorder])
    prometheus_client.start_http_server(int(os.environ["METRICS_PORT"]), "127.0.0.1")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with recorder:
        async with bill, TransactionalConsumer(bill, name_servers=os.environ["NAME_SERVERS"]):
            await stop.wait()
    await database.dispose()


if __name__ == "__main__":
    asyncio.run(work())
