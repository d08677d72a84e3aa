"""A machine that was suspended: what ends after a time has ended when it goes on."""

from __future__ import annotations

import sys
import time

import pytest

from reconciler.clock import SystemClock, _suspended_too


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a clock that goes on while it is suspended")
def test_the_time_in_which_a_machine_was_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim is over then, and another process may have repaired: nothing may be sent by it."""
    clock, read = SystemClock(), time.clock_gettime
    began = clock.monotonic_seconds()
    monkeypatch.setattr(time, "clock_gettime", lambda which: read(which) + 3_600 * (which == time.CLOCK_BOOTTIME))
    assert clock.monotonic_seconds() - began >= 3_600


def test_a_machine_that_refuses_the_clock_of_suspended_time_has_its_monotonic_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(which: int) -> float:
        raise OSError(which)

    monkeypatch.setattr(time, "clock_gettime", refuse)
    assert _suspended_too() is None
