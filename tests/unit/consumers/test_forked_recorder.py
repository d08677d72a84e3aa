"""The first moments of a recorder in a forked child."""

from __future__ import annotations

import os
from typing import Any

import pytest

from checkback_consumers.recorder import Batch
from tests.unit.consumers.messages import new_key
from tests.unit.consumers.test_recorder import Sink, recorder_of


def test_a_second_thread_of_a_forked_child_does_not_wait_for_the_lock_of_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = recorder_of(Sink())
    recorder._lock.acquire()  # as fork leaves it when a thread of the parent held it
    recorder._pid = -1
    looks_ready: list[bool] = []

    def batch(*arguments: Any) -> Any:
        looks_ready.append(recorder._pid == os.getpid())
        return Batch(*arguments)

    monkeypatch.setattr("checkback_consumers.recorder.Batch", batch)
    recorder.record("ORDERS", new_key())
    recorder.close()
    assert looks_ready[0] is False, "another thread would go on with what is only half begun"
