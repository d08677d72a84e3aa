"""One world a database: SQLite always, PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.producers.world import World


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    """A producer and its database."""
    made = World(database_url)
    yield made
    made.close()
