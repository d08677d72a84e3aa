"""Fresh databases of each kind: SQLite always, PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

DATABASES = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.sql),
    pytest.param("mariadb", marks=pytest.mark.sql),
]


@pytest.fixture(params=DATABASES)
def new_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes fresh databases of one kind."""
    if request.param == "sqlite":
        numbers = iter(range(100))
        return lambda: f"sqlite:///{tmp_path}/database-{next(numbers)}.db"
    server = request.getfixturevalue("postgres_server" if request.param == "postgresql" else "mariadb_server")
    return lambda: str(server.create_database())


@pytest.fixture
def database_url(new_database_url: Callable[[], str]) -> str:
    """A fresh database."""
    return new_database_url()
