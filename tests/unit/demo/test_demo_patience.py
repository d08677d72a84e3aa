"""A slow machine must not fail the demo; one that hangs must not keep it for ever."""

from __future__ import annotations

import itertools

import pytest

from reconciler.clock import ManualClock
from reconciler.demo.patience import STANDSTILL_SECONDS, Patience
from reconciler.demo.processes import DemoFailed


@pytest.mark.parametrize(("before", "last"), [(0, 50), (1_000, 3)], ids=["many steps", "next act counts from zero"])
def test_slow_act_that_moves_is_waited_for(before: int, last: int) -> None:
    clock = ManualClock()
    patience = Patience(clock)
    patience.count(before)
    patience.begin()
    steps = itertools.count(1)

    def reached() -> bool:
        step = next(steps)
        clock.advance(STANDSTILL_SECONDS * 0.9)
        patience.count(step)
        return step == last

    patience.wait(reached, "the last step")
    assert next(steps) == last + 1


def test_act_that_stands_still_fails_with_what_was_waited_for() -> None:
    clock = ManualClock()
    patience = Patience(clock)
    began_seconds = clock.monotonic_seconds()

    def never() -> bool:
        patience.count(3)  # the same number again is no movement
        return False

    with pytest.raises(DemoFailed, match="nothing moved for 130 s while waiting until pigs fly"):
        patience.wait(never, "pigs fly", beyond_seconds=10)
    assert 130 < clock.monotonic_seconds() - began_seconds < 131
