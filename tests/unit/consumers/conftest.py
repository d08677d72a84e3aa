"""A database with inbox and ledger, and a loop beside the threads of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.sql.tables import ledger_metadata
from tests.unit.consumers.loops import LoopThread
from tests.unit.consumers.messages import inbox_engine, sqlite_url


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """Both in one file."""
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        ledger_metadata.create_all(opened)
        yield opened


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    """It runs."""
    made = LoopThread()
    yield made
    made.close()
