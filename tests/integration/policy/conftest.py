"""A database server that tests of a module may stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.requirements import mariadb_missing, postgres_missing, require

Server = PostgresServer | MariaDBServer


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("postgresql", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ],
)
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that tests may stop."""
    require(postgres_missing() if request.param == "postgresql" else mariadb_missing())
    with PostgresServer() if request.param == "postgresql" else MariaDBServer() as started:
        yield started


@pytest.fixture(scope="session")
def primary_server() -> Iterator[PostgresServer]:
    """A server for a standby, which copies every database: the shared server has hundreds of them."""
    require(postgres_missing())
    with PostgresServer() as started:
        yield started


@pytest.fixture
def server(own_server: Server) -> Iterator[Server]:
    """It goes on after the test."""
    yield own_server
    own_server.thaw()
