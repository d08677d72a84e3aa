"""Two more views: a dependency commits, and an answer is streamed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated
from uuid import uuid4

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from orders import Session, customer, message_of, placed
from sqlalchemy.ext.asyncio import AsyncSession
from tables import Order

router = APIRouter()
Customer = Annotated[str, Depends(customer)]


async def blocks() -> AsyncIterator[AsyncExitStack]:
    """What depends on this ends before: a session commits, then its block ends."""
    async with AsyncExitStack() as stack:
        yield stack


# FastAPI ends other dependencies after the answer was sent: nobody would hear of a commit that fails.
Blocks = Annotated[AsyncExitStack, Depends(blocks, scope="function")]


async def committed(request: Request, blocks: Blocks) -> AsyncIterator[AsyncSession]:
    """A session that commits when the view has returned."""
    async with request.app.state.sessions.begin() as session:
        yield session


Committed = Annotated[AsyncSession, Depends(committed, scope="function")]


@router.post("/orders/committed")
async def order_committed(request: Request, session: Committed, blocks: Blocks, customer: Customer) -> dict[str, str]:
    """The block stays open until the session has committed."""
    number = uuid4().hex
    block = request.app.state.producer.transaction(message_of(number), business_id=number)
    tx = await blocks.enter_async_context(block)
    await tx.record(session)
    session.add(Order(number=number, customer=customer))
    return {"order": number}


@router.post("/orders/streamed")
async def order_streamed(request: Request, session: Session, customer: Customer) -> StreamingResponse:
    """The block ends before the first byte; what streams has a session of its own, and only reads."""
    await placed(request.app.state.producer, session, customer)

    async def numbers() -> AsyncIterator[str]:
        async with request.app.state.sessions() as reading:
            async for number in await reading.stream_scalars(sa.select(Order.number)):
                yield f"{number}\n"

    return StreamingResponse(numbers())
