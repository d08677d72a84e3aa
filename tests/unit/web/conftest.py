"""What all tests of the web room share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from reconciler.web.access import passwords
from tests.unit.web.form_browser import Browser
from tests.unit.web.ledger_of_cases import make_ledger
from tests.unit.web.web_world import WebWorld, with_three_users


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """Hashes that take no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        yield


@pytest.fixture(scope="session")
def folder_of_cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the ledger of ledger_of_cases.py in it, which tests only read."""
    folder = tmp_path_factory.mktemp("cases")
    make_ledger(folder)
    return folder


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """An operator's, with a ledger of its own."""
    engine = open_engine(f"sqlite:///{tmp_path}/none.db")
    ledger_metadata.create_all(engine)
    engine.dispose()
    world = WebWorld(tmp_path, users_file=str(with_three_users(tmp_path)))
    with world.connections:
        yield Browser(world, "operator")
