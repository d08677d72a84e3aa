"""Latency counts: percentiles within their stated precision, in any order and any parts."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.audit.judge.latency_counts import LatencyCounts

VALUES = st.lists(
    st.one_of(st.integers(-5, 300), st.integers(0, 10**7), st.integers(0, 2**50)), min_size=1, max_size=80
)
SHARES = {"p50_ms": 500, "p90_ms": 900, "p95_ms": 950, "p99_ms": 990, "p999_ms": 999}


def counted(values: list[int]) -> LatencyCounts:
    counts = LatencyCounts()
    counts.add(np.array(values, np.int64))
    return counts


@given(VALUES)
@example([254, 255, 256])
def test_percentiles_are_exact_or_at_most_one_128th_too_large(values: list[int]) -> None:
    found = counted(values).percentiles()
    assert found is not None
    known = sorted(max(0, value) for value in values)
    assert (found.count, found.smallest_ms, found.largest_ms) == (len(known), known[0], known[-1])
    for name, share in SHARES.items():
        exact = known[-(-len(known) * share // 1000) - 1]
        assert exact <= getattr(found, name) <= (exact if exact < 255 else exact + exact / 128)


@given(VALUES, st.integers(0, 80))
def test_parts_add_up_in_any_order(values: list[int], cut: int) -> None:
    whole, first, second = counted(values), counted(values[:cut]), counted(values[cut:])
    again = LatencyCounts.decoded(second.encoded())
    again.merge(first)
    assert again.percentiles() == whole.percentiles()


def test_no_value_has_no_percentile() -> None:
    assert LatencyCounts().percentiles() is None
    assert counted([]).percentiles() is None
