"""Where half queues ended while no producer was connected: what a broker that was built anew says counts again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.clock import ManualClock
from reconciler.evidence.absent_producers import Absence, AbsentProducers


class _Looks:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked = 0
        self._absent = AbsentProducers(self.clock)

    def look(self, end: int, *, after: float = 60.0, half: int = 0, broker: str = "b", group: str = "PG") -> Absence:
        self.clock.advance(after)

        def ask() -> int:
            self.asked += 1
            return end

        return self._absent.not_found(broker, group, "HALF", ask, known_offset=half, unlooked_seconds_max=180.0)


def ends(absence: Absence) -> list[int]:
    return [end for _, end in absence.half_queue_ends]


def test_a_broker_that_says_less_at_every_look_has_begun_anew() -> None:
    """With an empty disk under its old name: nothing was ever put back behind the end that it once had."""
    looks = _Looks()
    looks.look(1_000_000)
    looks.look(700, broker="c")
    said = [looks.look(40 + minute, half=20 + minute) for minute in range(11)]
    assert [ends(one) for one in said] == [[1_000_000]] * 11, "for ten minutes"
    assert looks.look(60, half=40) == (0.0, ()), "what was known is forgotten"
    assert looks.look(61, half=40) == (0.0, ((0.0, 61),))
    assert looks.look(62, half=41) == (60.0, ((60.0, 61), (0.0, 62)))
    assert ends(looks.look(10, broker="c"))[:1] != [10], "another broker's is kept"


def test_every_group_of_a_broker_that_has_begun_anew_begins_anew() -> None:
    looks = _Looks()
    looks.look(1_000)
    for _ in range(12):
        looks.look(5, after=30)
        looks.look(5, after=30, group="PH")
    assert looks.look(6, group="PH").seconds <= 120.0
    assert set(ends(looks.look(6))) == {5, 6}


def test_an_end_that_reaches_what_is_known_ends_the_time_in_which_less_was_said() -> None:
    looks = _Looks()
    looks.look(100)
    for _ in range(3):
        for _ in range(8):
            assert 7 not in ends(looks.look(7))
        assert ends(looks.look(100))[-1] == 100


def test_a_time_without_looks_is_none_in_which_less_was_said() -> None:
    """It may have failed over twice."""
    looks = _Looks()
    looks.look(100)
    looks.look(0)
    assert looks.look(0, after=3_600.0) == (0.0, ())
    assert looks.look(0) == (60.0, ()), "not begun anew"


def test_a_broker_that_says_less_is_not_asked_at_each_look() -> None:
    looks = _Looks()
    looks.look(100)
    for _ in range(10):
        looks.look(7, after=1.0, group="PH")
    assert looks.asked == 3


@pytest.mark.parametrize("after", [60.0, 1.0])
@pytest.mark.parametrize("back", [100, 97], ids=["whole", "without its tail"])
def test_a_queue_that_is_there_again_after_more_than_ten_minutes_is_not_judged_by_the_shorter_one(
    back: int, after: float
) -> None:
    """A replica that was behind stood in, and the former primary is back: what it had put back before, when producers
    were connected, lies behind each end of the replica."""
    looks = _Looks()
    looks.look(100)
    for _ in range(13):
        looks.look(50)
    assert set(ends(looks.look(51))) == {50, 51}
    assert looks.look(back, half=90, after=after) == (0.0, ())
    assert looks.look(back + 1, half=90) == (0.0, ((0.0, back + 1),))


def test_a_producer_that_another_thread_has_found_during_a_look_was_there() -> None:
    absent = AbsentProducers(ManualClock())

    def look(end_of_half_queue: Callable[[], int]) -> Absence:
        return absent.not_found("b", "PG", "HALF", end_of_half_queue, known_offset=0, unlooked_seconds_max=180.0)

    def found_meanwhile() -> int:
        absent.found("b", "PG")
        return 7

    assert look(found_meanwhile) == (0.0, ())
    assert look(lambda: 8) == (0.0, ((0.0, 8),))


def test_a_queue_that_grows_past_its_former_end_begins_anew_once() -> None:
    looks = _Looks()
    looks.look(100)
    said = [looks.look(end) for end in range(40, 130)]
    assert [end for end, one in zip(range(40, 130), said, strict=True) if one == (0.0, ())] == [51, 99]
