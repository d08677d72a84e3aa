"""One world a database: SQLite always, PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.producers.faces import FACES
from tests.unit.producers.world import World


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    """A producer and its database."""
    made = World(database_url)
    yield made
    made.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The asynchronous face shows on PostgreSQL in CI, on the other databases by night; so do cases that stop a server
    of their own."""
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        by_night = given.get("new_database_url") in ("sqlite", "mariadb") or "server" in given
        if given.get("face") == "asyncio" and (by_night or "mariadb_server" in getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    """Cases with it run on the synchronous and on the asynchronous producer."""
    return str(request.param)


@pytest.fixture
def both(database_url: str, face: str) -> Iterator[World]:
    """A producer and its database, on each face."""
    made = FACES[face](database_url)
    yield made
    made.close()
