"""Cases of the inbox on both faces: handlers on the client's threads, and handlers in a loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from tests.integration.consumers.faces import Decorator, asynchronous
from tests.unit.consumers.loops import LoopThread
from tests.unit.consumers.messages import inbox_engine


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The asynchronous face shows on PostgreSQL in CI, on the other databases by night."""
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        of = given.get("new_database_url") or given.get("url")
        by_night = given.get("handling") == "asyncio" and of in ("sqlite", "mariadb")
        if by_night or given.get("box") == "asyncio":  # of MariaDB alone
            item.add_marker(pytest.mark.nightly)


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    """An inbox in each database."""
    with inbox_engine(database_url) as opened:
        yield opened


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    """A running loop, on a thread of its own."""
    made = LoopThread()
    yield made
    made.close()


@pytest.fixture(params=["threads", "asyncio"])
def handling(request: pytest.FixtureRequest, database_url: str) -> Decorator:
    """Cases that decorate with it hold on both faces."""
    if request.param == "threads":
        return transactional_handler
    return asynchronous(request.getfixturevalue("loop"), database_url)
