"""A loop beside the threads of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.consumers.loops import LoopThread


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    """It runs."""
    made = LoopThread()
    yield made
    made.close()
