"""What two readings prove of two clocks: never more than is true, however slow the answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.policy.judging.clock_reading import ClockReading, apart_seconds

SECONDS = st.floats(min_value=0, max_value=1_000)
OFFSETS = st.integers(min_value=-100_000, max_value=100_000)


def read(at_second: float, *, wrong_by_ms: int, before: float, after: float) -> ClockReading:
    """A clock that shows at_second + wrong_by_ms at that second."""
    return ClockReading(
        at_ms=round(at_second * 1000) + wrong_by_ms,
        asked_seconds=at_second - before,
        answered_seconds=at_second + after,
    )


@given(SECONDS, SECONDS, OFFSETS, OFFSETS, SECONDS, SECONDS)
def test_no_more_is_proved_than_is_true(
    first: float, second: float, one_ms: int, other_ms: int, before: float, after: float
) -> None:
    one = read(first, wrong_by_ms=one_ms, before=before, after=after)
    other = read(second, wrong_by_ms=other_ms, before=before, after=after)
    really, proved = (other_ms - one_ms) / 1000, other.ahead_of(one)
    assert min(really, 0) - 0.002 <= proved <= max(really, 0) + 0.002
    assert abs(one.ahead_of(other) + proved) < 0.002
    assert abs(proved) >= abs(really) - 2 * (before + after) - 0.002


@pytest.mark.parametrize(
    ("brokers_ms", "told"),
    [([], 0.0), ([103_000], 0.0), ([97_000], 0.0), ([120_000], 19.0), ([103_000, 80_000], -19.0)],
)
def test_the_worst_broker_is_told_if_it_is_beyond_the_margin(brokers_ms: list[int], told: float) -> None:
    assert apart_seconds(100_000, brokers_ms, read_within_seconds=1.0, margin_seconds=5.0) == pytest.approx(told)
