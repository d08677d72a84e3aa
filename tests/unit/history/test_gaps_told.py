"""Which rounds are written down as a gap: those that ran here and are gone, and none that another daemon may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.subscription import Shard
from reconciler.history.shard_records import capture_shard
from reconciler.policy.ports.history import Capture, CapturedRound, PendingSnapshot, RoundMark
from reconciler.policy.ports.rounds import RoundCounts, RoundDone
from tests.unit.history.house import EPOCH, shard

NEW = "test:0002"
AFTER = RoundMark(epoch=EPOCH, generation=100, at_ms=5_000)


class Answer:
    """A port that answers once."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def capture(self, shard: Shard, *, after: RoundMark | None) -> Capture:
        return self._capture

    def snapshot(self, shard: Shard) -> PendingSnapshot:
        raise NotImplementedError


def captured(epoch: str, generation: int) -> CapturedRound:
    return CapturedRound(
        shard=shard(), epoch=epoch, generation=generation, at_ms=9_000, announced=(), consumed=(), left_matched=()
    )


def told_gaps(
    capture: Capture, told: dict[str, tuple[int, int]], after: RoundMark | None = AFTER, stored: RoundDone | None = None
) -> list[tuple[object, ...]]:
    found = capture_shard(Answer(capture), shard(), after=after, ran={}, uncaptured=told, stored=stored)
    batches = [batch.shared for record in found.records for batch in record if batch.stream == "gap"]
    generations = [(int(str(b["first_generation"])), int(str(b["last_generation"]))) for b in batches]
    assert found.missed == sum(last - first + 1 for first, last in generations)
    return [(b["epoch"], b["first_generation"], b["last_generation"], b["from_ms"], b["at_ms"]) for b in batches]


def one(epoch: str | None, generation: int, **more: object) -> Capture:
    values: dict[str, object] = {"shard": shard(), "epoch": epoch, "generation": generation, "now_ms": 10_000}
    values |= {"rounds": (captured(epoch or "", generation),), "missed": None}
    return Capture(**{**values, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("capture", "told", "gaps"),
    [
        pytest.param(one(EPOCH, 101), {EPOCH: (101, 101)}, [], id="nothing missing"),
        pytest.param(
            one(EPOCH, 110, missed=(101, 109)), {EPOCH: (101, 110)}, [(EPOCH, 101, 109, 5_000, 9_000)], id="all ours"
        ),
        pytest.param(
            one(EPOCH, 110, missed=(101, 109)), {EPOCH: (105, 110)}, [(EPOCH, 105, 109, 5_000, 9_000)], id="some ours"
        ),
        pytest.param(one(EPOCH, 110, missed=(101, 109)), {}, [], id="another daemon's"),
        pytest.param(one(NEW, 1, new_memory=True), {EPOCH: (101, 103)}, [(EPOCH, 101, 103, 5_000, 9_000)], id="lost"),
        pytest.param(one(NEW, 1, new_memory=True), {NEW: (1, 1)}, [], id="lost after the last capture"),
        pytest.param(one(None, 0, rounds=()), {EPOCH: (101, 103)}, [], id="no memory yet: told with the next epoch"),
    ],
)
def test_gap_rows(capture: Capture, told: dict[str, tuple[int, int]], gaps: list[tuple[object, ...]]) -> None:
    assert told_gaps(capture, told) == gaps


def ran(generation: int) -> RoundDone:
    counts = RoundCounts(announced=0, matched=0, pending_before=0, pending_added=0, pending_matched=0, pending_after=0)
    return RoundDone(
        shard=shard(), epoch=EPOCH, generation=generation, at_ms=9_000 + generation, offsets={}, counts=counts
    )


def test_rounds_that_are_read_under_a_new_marker_are_no_gap() -> None:
    """Only the epoch's marker was deleted: the counter goes on, and so do the kept sets."""
    again = [replace(captured(NEW, number), at_ms=9_000 + number) for number in (101, 102, 103)]
    capture = one(NEW, 103, new_memory=True, rounds=tuple(again), missed=(1, 100))
    known = {(EPOCH, number): ran(number) for number in (101, 102)}
    found = capture_shard(
        Answer(capture), shard(), after=AFTER, ran=known, uncaptured={EPOCH: (101, 102), NEW: (103, 103)}
    )
    assert (found.missed, [batch.stream for record in found.records for batch in record]) == (0, ["round"] * 3)


def test_the_same_numbers_in_a_new_memory_are_other_rounds() -> None:
    capture = one(NEW, 101, new_memory=True, rounds=(captured(NEW, 101),))
    found = capture_shard(
        Answer(capture), shard(), after=AFTER, ran={(EPOCH, 101): ran(101)}, uncaptured={EPOCH: (101, 101)}
    )
    assert found.missed == 1


def test_without_a_place_to_go_on_from_the_ledger_decides_nothing() -> None:
    assert told_gaps(one(NEW, 50, missed=(1, 49)), {}, after=None) == []


def test_a_shard_without_memory_keeps_its_place() -> None:
    found = capture_shard(Answer(one(None, 0, rounds=())), shard(), after=AFTER, ran={}, uncaptured={})
    assert found.mark == AFTER


def test_a_gap_without_any_round_moves_the_place_on() -> None:
    capture = one(EPOCH, 110, missed=(101, 110), rounds=())
    found = capture_shard(Answer(capture), shard(), after=AFTER, ran={}, uncaptured={EPOCH: (101, 110)})
    assert found.mark is not None
    assert (found.mark.generation, found.missed) == (110, 10)
