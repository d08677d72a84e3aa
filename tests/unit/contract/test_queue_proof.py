"""The records that a consumer remembers of a queue: what is kept, and what damaged text proves."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.contract.queue_proof import (
    TRAIL_HOURS,
    TRAIL_RECORDS_MAX,
    QueueProof,
    QueueRecord,
    read_proof,
    read_record,
    read_trail,
    record_of,
    trail_text,
    with_record,
)

MINUTE_MS = 60_000

stored = SimpleNamespace


def record(offset: int, at_ms: int = 0) -> QueueRecord:
    return QueueRecord(queue_offset=offset, stored_at_ms=at_ms, commit_log_offset=offset * 7, unique_key=f"{offset:X}")


def test_a_trail_has_every_minute_of_the_last_hour_and_every_hour_before() -> None:
    trail: tuple[QueueRecord, ...] = ()
    minutes = (TRAIL_HOURS + 30) * 60
    for minute in range(minutes):
        for part in range(3):
            trail = with_record(trail, record(minute * 3 + part, minute * MINUTE_MS + part * 15_000))
    ages = [(minutes - 1) - one.stored_at_ms // MINUTE_MS for one in trail]
    assert [age for age in reversed(ages) if age < 60] == list(range(60))
    older = [age for age in ages if age > 60]
    assert all(first - second == 60 for first, second in pairwise(older))
    assert older[0] > (TRAIL_HOURS - 2) * 60
    assert len(trail) <= TRAIL_RECORDS_MAX
    assert read_trail(trail_text(trail)) == trail


def test_within_a_minute_the_trail_stays() -> None:
    trail = with_record((), record(5, 1_000))
    assert with_record(trail, record(6, 60_999)) == trail
    assert with_record(trail, record(6, 61_000)) == (*trail, record(6, 61_000))


def test_records_at_or_above_a_new_offset_belong_to_a_queue_that_is_no_more() -> None:
    trail = (record(1, 0), record(5, MINUTE_MS), record(9, 2 * MINUTE_MS))
    again = record(5, 2 * MINUTE_MS + 1)
    assert with_record(trail, again) == (record(1, 0), again)


@given(times=st.lists(st.integers(0, 2**62), max_size=300))
def test_whatever_the_clock_of_a_broker_does_the_trail_is_bounded_and_rises(times: list[int]) -> None:
    trail: tuple[QueueRecord, ...] = ()
    for offset, at_ms in enumerate(times):
        trail = with_record(trail, record(offset, at_ms))
    assert len(trail) <= TRAIL_RECORDS_MAX
    assert [one.queue_offset for one in trail] == sorted({one.queue_offset for one in trail})


@given(key=st.text(max_size=200))
def test_a_record_is_read_as_it_was_written_whatever_its_sender_chose_as_its_key(key: str) -> None:
    one = record_of(stored(queue_offset=3, store_timestamp_ms=4, physical_offset=5, unique_key=key))
    assert read_record(one.text) == one
    proof = QueueProof(following=9, record=one)
    assert read_proof(proof.text) == proof
    assert "\n" not in proof.text


@pytest.mark.parametrize(
    "text", ["", "5", "5 3 4", "5 3 4 5", "x 3 4 5 A", "5 3 4 5 A B", "3 3 4 5 A", "5 3 4 5 A\n", "\u0665 3 4 5 A"]
)
def test_a_damaged_proof_proves_nothing(text: str) -> None:
    assert read_proof(text) is None


def test_a_damaged_line_of_a_trail_costs_itself_alone() -> None:
    assert read_trail("1 2 3 A\nnonsense\n0 9 9 Z\n4 5 6 B") == (
        QueueRecord(queue_offset=1, stored_at_ms=2, commit_log_offset=3, unique_key="A"),
        QueueRecord(queue_offset=4, stored_at_ms=5, commit_log_offset=6, unique_key="B"),
    )
