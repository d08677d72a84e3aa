"""A producer over an SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.producers.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A producer and its database."""
    made = World(f"sqlite:///{tmp_path}/orders.db")
    yield made
    made.close()
