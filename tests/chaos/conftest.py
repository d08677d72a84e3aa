"""An empty chaos database, as a run starts with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from reconciler.sql import schema
from tests.chaos.planted import commit
from tests.chaos.truth import make_tables
from tests.services import postgres
from tests.services.postgres import PostgresServer
from tests.services.requirements import require


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    require(postgres.missing())
    with PostgresServer() as running:
        yield running


@pytest.fixture
def engine(server: PostgresServer) -> Iterator[sa.Engine]:
    url = server.create_database("chaos")
    for tree in ("outbox", "inbox", "ledger"):
        schema.upgrade(url, tree)
    opened = sa.create_engine(url)
    make_tables(opened)
    for key in ("A", "B"):
        commit(opened, key)
    yield opened
    opened.dispose()
