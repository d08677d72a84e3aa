"""The stand-in library under the real package, and a service that sends orders over it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.rocketmq.client import native_client
from tests.brokers.addresses import address_fixture
from tests.native.orders import Orders
from tests.native.package import package_folder
from tests.native.stand_in import StandIn
from tests.services.requirements import downloaded

__all__ = ["address_fixture"]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    """Every test fails if something happened that would have crashed the process."""
    library = StandIn()
    monkeypatch.syspath_prepend(str(downloaded(package_folder)))
    monkeypatch.setitem(sys.modules, "rocketmq.ffi", library.module())
    monkeypatch.setenv("HOME", str(tmp_path))
    before = len(native_client._ever_made)
    yield library
    for event in library.hang.values():
        event.set()
    for made in native_client._ever_made[before:]:
        if not made.is_stuck:
            made.shutdown()
    del native_client._ever_made[before:]
    for name in [name for name in sys.modules if name.partition(".")[0] == "rocketmq"]:
        del sys.modules[name]
    assert library.crashes == []


@pytest.fixture
def orders(stand_in: StandIn, tmp_path: Path) -> Iterator[Orders]:
    """A service with a database."""
    service = Orders(f"sqlite:///{tmp_path}/orders.db", stand_in)
    yield service
    service.close()
