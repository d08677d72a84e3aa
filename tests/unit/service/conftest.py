"""Settings and connections of commands, on a ledger of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql.tables import ledger_metadata
from reconciler.wiring.connections import Connections
from tests.engines import make_tables

ROOT = Path(__file__).parents[3]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/ledger.db"
    make_tables(url, ledger_metadata)
    return load_settings(ROOT / "config" / "reconciler.toml", {"RECONCILER_LEDGER__URL": url})


@pytest.fixture
def connections(settings: Settings) -> Iterator[Connections]:
    with Connections(settings) as opened:
        yield opened
