"""The pytest plug-in `checkback` has fixtures for tests of services that send or receive.

If the package is installed, every run of pytest loads this plug-in. Its import needs only pytest and the standard
library. Everything else is loaded when a fixture is used.
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
    """The URL of the database of outboxes and inboxes, which is a SQLite file. For another database, define a fixture
    of this name."""
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
