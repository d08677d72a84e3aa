"""The pytest plug-in `checkback`: fixtures for tests of services that send or receive.

Every run of pytest loads it where the package is installed. At import it needs only pytest and the standard library; it
loads the rest when a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from reconciler.testing import Checkback


@pytest.fixture
def checkback_url(tmp_path: Path) -> str:
    """The URL of the database of outboxes and inboxes: a SQLite file. Define a fixture of this name for another one."""
    return f"sqlite:///{tmp_path / 'checkback.db'}"


@pytest.fixture
def checkback_kit(checkback_url: str, tmp_path: Path) -> Iterator[Checkback]:
    """A broker, the tables of both plug-ins in `checkback_url`, and a reconciler that the test drives by hand."""
    try:
        from reconciler.testing import Checkback
    except ModuleNotFoundError as error:
        pytest.fail(
            f"the fixtures of checkback need {error.name}: pip install 'checkback-reconciler[testing]'", pytrace=False
        )
    kit = Checkback(checkback_url, folder=tmp_path)
    try:
        yield kit
        kit.assert_every_accident_struck()
    finally:
        kit.close()
