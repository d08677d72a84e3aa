"""An environment without one of the packages that bodies may need."""

from __future__ import annotations

import sys

import pytest

from reconciler.rocketmq.wire import compression


def without_package(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """From now on importing it fails, and nothing has been said about it yet."""
    monkeypatch.setitem(sys.modules, module, None)
    compression._log_once.cache_clear()
