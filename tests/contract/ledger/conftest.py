"""One suite for the ledger in memory, on SQLite, PostgreSQL and MariaDB, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from reconciler.telling.ports.reports import Ledger
from reconciler.testing.memory import MemoryLedger
from reconciler.words import said
from tests.contract.ledger.rows import new_environment

BACKENDS = [
    "memory",
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.sql("postgres")),
    pytest.param("pgbouncer", marks=pytest.mark.sql("pgbouncer")),
    pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
]


@dataclass(frozen=True, slots=True)
class World:
    """A ledger, its database time, and an environment of the test's own."""

    ledger: Ledger
    clock: ManualClock
    environment: str


@dataclass(frozen=True, slots=True)
class DatabaseWorld:
    """The same, in a database: what no policy asks for has no twin in memory."""

    ledger: SqlLedger
    clock: ManualClock
    environment: str


class ClockTime:
    """Database time from the test's clock: exact times just before, at and after a limit."""

    def __init__(self) -> None:
        self.clock = ManualClock()

    def __call__(self, _dialect: str) -> sa.ColumnElement[int]:
        return sa.literal(self.clock.now_ms(), sa.BigInteger())


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, sa.Engine]]:
    """Engines with the ledger's tables, opened at first use; each test has an environment of its own."""
    opened: dict[str, sa.Engine] = {}
    yield opened
    for engine in opened.values():
        engine.dispose()


def _engine(backend: str, engines: dict[str, sa.Engine], request: pytest.FixtureRequest, folder: Path) -> sa.Engine:
    if backend not in engines:
        url = f"sqlite:///{folder}/ledger.db"
        if backend != "sqlite":
            url = request.getfixturevalue(f"{backend}_server").create_database()
        engines[backend] = open_engine(url)
        ledger_metadata.create_all(engines[backend])
    return engines[backend]


@pytest.fixture(params=BACKENDS)
def world(
    request: pytest.FixtureRequest, engines: dict[str, sa.Engine], tmp_path_factory: pytest.TempPathFactory
) -> World:
    """The ledger of each backend in turn."""
    if request.param == "memory":
        clock = ManualClock()
        return World(MemoryLedger(clock, host_clock=clock, english=said), clock, new_environment())
    made = _in_database(request, engines, tmp_path_factory)
    return World(made.ledger, made.clock, made.environment)


@pytest.fixture(params=BACKENDS[1:])
def database_world(
    request: pytest.FixtureRequest, engines: dict[str, sa.Engine], tmp_path_factory: pytest.TempPathFactory
) -> DatabaseWorld:
    """The ledger of each database in turn."""
    return _in_database(request, engines, tmp_path_factory)


def _in_database(
    request: pytest.FixtureRequest, engines: dict[str, sa.Engine], tmp_path_factory: pytest.TempPathFactory
) -> DatabaseWorld:
    time = ClockTime()
    engine = _engine(request.param, engines, request, tmp_path_factory.mktemp("ledger"))
    return DatabaseWorld(SqlLedger(engine, now=time, clock=time.clock, english=said), time.clock, new_environment())
