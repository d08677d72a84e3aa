"""Takes orders: an order and its message are committed together, or neither is."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import uuid4

import prometheus_client
import sqlalchemy as sa
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from tables import Customer, Order

from checkback_producers import AsyncTransactionalProducer, Message, open_producer
from checkback_producers.errors import TransientError
from checkback_producers.metrics import register_metrics

DRIVERS = {"postgresql": "postgresql+asyncpg", "sqlite": "sqlite+aiosqlite"}


async def sessions(request: Request) -> AsyncIterator[AsyncSession]:
    """A session for each request."""
    async with request.app.state.sessions() as session:
        yield session


Session = Annotated[AsyncSession, Depends(sessions)]


async def customer(name: str, session: Session) -> str:
    """Reads, so that the session has begun a transaction before the view does anything."""
    if await session.get(Customer, name) is None:
        raise HTTPException(403, "no such customer")
    return name


def message_of(number: str) -> Message:
    """What consumers get."""
    return Message(topic="ORDERS", body=json.dumps({"order": number}).encode())


async def place(producer: AsyncTransactionalProducer, session: AsyncSession, customer: str) -> str:
    """Commits an order and sends its message; a TransientError means that neither happened."""
    number = uuid4().hex
    block = producer.transaction(message_of(number), business_id=number)
    async with block as tx, session:  # an error rolls the session back
        await tx.record(session)
        session.add(Order(number=number, customer=customer))
        await session.commit()  # the last statement of the block
    return number


async def placed(producer: AsyncTransactionalProducer, session: AsyncSession, customer: str) -> str:
    """Tries the whole block up to three times."""
    for pause_seconds in (0.1, 0.5):
        try:
            return await place(producer, session, customer)
        except TransientError:
            await asyncio.sleep(pause_seconds)
    return await place(producer, session, customer)


async def order(request: Request, session: Session, customer: Annotated[str, Depends(customer)]) -> dict[str, str]:
    """The view."""
    try:
        return {"order": await placed(request.app.state.producer, session, customer)}
    except TransientError as error:
        raise HTTPException(503, "try again") from error


def metrics(request: Request) -> PlainTextResponse:
    """For Prometheus."""
    return PlainTextResponse(prometheus_client.generate_latest(request.app.state.registry))


def application(database_url: str, **brokers: Any) -> FastAPI:
    """`brokers`: where the producer sends to, as `open_producer` takes it."""
    url = sa.make_url(database_url)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        database = create_async_engine(url.set(drivername=DRIVERS[url.get_backend_name()]))
        made = open_producer(group="order-service", outbox_url=database_url, **brokers)
        async with AsyncTransactionalProducer(made, database=database) as app.state.producer:
            app.state.sessions = async_sessionmaker(database, expire_on_commit=False)
            app.state.registry = prometheus_client.CollectorRegistry()
            register_metrics(app.state.registry, producers=[app.state.producer])
            yield
        await database.dispose()

    app = FastAPI(lifespan=lifespan)
    app.post("/orders")(order)
    app.get("/metrics")(metrics)
    return app


def from_environment() -> FastAPI:
    """For `uvicorn --factory`."""
    return application(os.environ["DATABASE_URL"], environment="production", name_servers=os.environ["NAME_SERVERS"])
