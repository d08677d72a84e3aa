"""A database server that tests of a module may stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from reconciler.contract import defaults
from reconciler.sql.postgres_deadline import BoundedConnection
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.requirements import mariadb_missing, postgres_missing, require

Server = PostgresServer | MariaDBServer

#: Deadline of a statement while the server works: no test is about it, and a busy machine may need seconds.
STATEMENT_SECONDS = 50.0
#: Deadline of an engine whose statements the server itself has to end.
SERVER_ENDS_SECONDS = 2.0
#: How long a connection to a server that stands still is waited for.
SILENT_SECONDS = 2.0
_DEADLINES = (STATEMENT_SECONDS, SERVER_ENDS_SECONDS, defaults.STATEMENT_SECONDS)


class Standstill:
    """Of a server. The product's deadlines are long until it begins, and short until it ends: nobody answers meanwhile.

    A connection that an engine gave no deadline gets none here.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connections: list[Any] = []
        self._has_begun = False

    def connect(self, _dialect: object, _record: object, _arguments: object, named: dict[str, Any]) -> None:
        """About to connect: PyMySQL waits for the server's greeting as long as for an answer."""
        if self._has_begun and named.get("port") == self._server.port and named.get("read_timeout") in _DEADLINES:
            named["read_timeout"] = SILENT_SECONDS

    def note(self, connection: Any, _record: object) -> None:
        """A new connection: where the server ends statements, its client waits until the server has."""
        if isinstance(connection, BoundedConnection):
            port, seconds = connection.info.port, connection.statement_seconds
        elif isinstance(connection, pymysql.Connection):
            port, seconds = connection.port, connection._read_timeout
        else:
            return
        if port == self._server.port and seconds in _DEADLINES:
            self._connections.append(connection)
            self._wait(STATEMENT_SECONDS)

    def begin(self) -> None:
        """The server stands still."""
        assert self._connections, "no connection to it has a deadline"
        self._has_begun = True
        self._wait(SILENT_SECONDS)
        self._server.freeze()

    def end(self) -> None:
        """It goes on."""
        self._server.thaw()
        self._has_begun = False
        self._wait(STATEMENT_SECONDS)

    def _wait(self, seconds: float) -> None:
        for connection in self._connections:
            is_postgres = isinstance(connection, BoundedConnection)
            setattr(connection, "statement_seconds" if is_postgres else "_read_timeout", seconds)


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


@pytest.fixture
def standstill(server: Server) -> Iterator[Standstill]:
    """That of the server."""
    made = Standstill(server)
    listeners = ((sa.Engine, "do_connect", made.connect), (sa.Pool, "connect", made.note))
    for listener in listeners:
        event.listen(*listener)
    yield made
    for listener in listeners:
        event.remove(*listener)
