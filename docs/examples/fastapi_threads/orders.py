"""Takes orders: an order and its message are committed together, or neither is."""

import json
import os
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import uuid4

import prometheus_client
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from sqlalchemy.orm import Session, sessionmaker
from tables import Customer, Order

from checkback_producers import Message, TransactionalProducer, open_producer
from checkback_producers.errors import TransientError
from checkback_producers.metrics import register_metrics
from checkback_producers.tables import open_engine


def sessions(request: Request) -> Iterator[Session]:
    """A session for each request."""
    with request.app.state.sessions() as session:
        yield session


OwnSession = Annotated[Session, Depends(sessions)]


def customer(name: str, session: OwnSession) -> str:
    """Reads, so that the session has begun a transaction before the view does anything."""
    if session.get(Customer, name) is None:
        raise HTTPException(403, "no such customer")
    return name


def place(producer: TransactionalProducer, session: Session, customer: str) -> str:
    """Commits an order and sends its message; a TransientError means that neither happened."""
    number = uuid4().hex
    message = Message(topic="ORDERS", body=json.dumps({"order": number}).encode())
    with producer.transaction(message, business_id=number) as tx, session:  # an error rolls the session back
        tx.record(session)
        session.add(Order(number=number, customer=customer))
        session.commit()  # the last statement of the block
    return number


def placed(producer: TransactionalProducer, session: Session, customer: str) -> str:
    """Tries the whole block up to three times."""
    for pause_seconds in (0.1, 0.5):
        try:
            return place(producer, session, customer)
        except TransientError:
            time.sleep(pause_seconds)
    return place(producer, session, customer)


def order(request: Request, session: OwnSession, customer: Annotated[str, Depends(customer)]) -> dict[str, str]:
    """The view: `def`, so that it runs on a thread."""
    try:
        return {"order": placed(request.app.state.producer, session, customer)}
    except TransientError as error:
        raise HTTPException(503, "try again") from error


def metrics(request: Request) -> PlainTextResponse:
    """For Prometheus."""
    return PlainTextResponse(prometheus_client.generate_latest(request.app.state.registry))


def application(database_url: str, **brokers: Any) -> FastAPI:
    """`brokers`: where the producer sends to, as `open_producer` takes it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        database = open_engine(database_url)
        app.state.sessions = sessionmaker(database, expire_on_commit=False)
        app.state.registry = prometheus_client.CollectorRegistry()
        with open_producer(group="order-service", outbox_url=database_url, **brokers) as app.state.producer:
            register_metrics(app.state.registry, producers=[app.state.producer])
            yield
        database.dispose()

    app = FastAPI(lifespan=lifespan)
    app.post("/orders")(order)
    app.get("/metrics")(metrics)
    return app


def from_environment() -> FastAPI:
    """For `uvicorn --factory`."""
    return application(os.environ["DATABASE_URL"], environment="production", name_servers=os.environ["NAME_SERVERS"])
