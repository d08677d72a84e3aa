"""Dependencies that commit, and streamed answers, with the test kit."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import more
import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient
from orders import application, message_of
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from tables import Base, Customer, Order

from reconciler.testing import Checkback


@pytest.fixture
def checkback(checkback_kit: Checkback) -> Checkback:
    checkback_kit.sends("order-service", "ORDERS")
    checkback_kit.stand_in("ORDERS")
    Base.metadata.create_all(checkback_kit.database)
    with Session(checkback_kit.database) as session, session.begin():
        session.add(Customer(name="mei"))
    return checkback_kit


@pytest.fixture
def app(checkback: Checkback) -> FastAPI:
    url = checkback.database.url.render_as_string(hide_password=False)
    app = application(url, environment=checkback.environment, instance=checkback.instance)
    app.include_router(more.router)
    return app


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def counted(app: FastAPI) -> dict[str, Any]:
    """What the producer counted, without zeros."""
    return {name: number for name, number in app.state.producer.counts.as_dict().items() if number}


def test_a_block_that_waits_for_a_dependency_ends_behind_its_commit(
    checkback: Checkback, app: FastAPI, client: TestClient
) -> None:
    assert client.post("/orders/committed?name=mei").status_code == 200
    assert counted(app) == {"halves": 1, "committed": 1}
    assert checkback.settle().is_at_rest


def test_a_commit_that_fails_in_a_dependency_is_answered_500_and_rolled_back(
    checkback: Checkback, app: FastAPI, client: TestClient
) -> None:
    @app.post("/twice")
    async def twice(session: more.Committed, placed: Annotated[dict[str, str], Depends(more.order_committed)]) -> None:
        session.add(Order(number=placed["order"], customer="mei"))

    assert client.post("/twice?name=mei").status_code == 500
    assert counted(app)["rolled_back"] == 1


def test_a_block_that_ends_before_the_commit_is_told_and_decided_by_check_back(
    checkback: Checkback, app: FastAPI, client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def committed_late(request: Request) -> AsyncIterator[AsyncSession]:
        async with request.app.state.sessions.begin() as session:
            yield session

    @app.post("/late")
    async def late(request: Request, session: Annotated[AsyncSession, Depends(committed_late)]) -> None:
        async with request.app.state.producer.transaction(message_of("7"), business_id="7") as tx:
            await tx.record(session)

    assert client.post("/late").status_code == 200
    assert counted(app) == {"halves": 1, "unknown": 1}
    assert "the recorded connection is still in a transaction" in caplog.text
    assert checkback.settle().is_at_rest
    checkback.assert_every_commit_took_effect()


def test_an_answer_is_streamed_behind_its_block(checkback: Checkback, app: FastAPI, client: TestClient) -> None:
    with client.stream("POST", "/orders/streamed?name=mei") as answer:
        assert counted(app) == {"halves": 1, "committed": 1}
        assert len(list(answer.iter_lines())) == 1
    assert checkback.settle().is_at_rest
