"""Pauses between attempts."""

from __future__ import annotations

import random

from reconciler.clock import Backoff, ManualClock, Reminders


def test_pauses_double_up_to_the_longest_and_never_overflow() -> None:
    backoff = Backoff(first_seconds=0.5, longest_seconds=3.0)
    assert [backoff.pause_seconds(doublings) for doublings in (0, 1, 2, 3, 10**6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_processes_that_failed_together_do_not_come_back_together() -> None:
    backoff, dice = Backoff(first_seconds=1.0, longest_seconds=8.0), random.Random(1)
    pauses = [backoff.jittered_seconds(9, dice) for _ in range(100)]
    assert len(set(pauses)) == 100
    assert all(4.0 <= pause <= 8.0 for pause in pauses)


def test_a_trouble_that_lasts_is_told_at_once_and_then_at_longer_and_longer_pauses() -> None:
    clock = ManualClock()
    reminders = Reminders(clock)

    def lines(seconds: int, *troubles: str) -> dict[str, list[int]]:
        told: dict[str, list[int]] = {trouble: [] for trouble in troubles}
        for second in range(0, seconds, 2):
            for trouble in troubles:
                if reminders.is_due(trouble):
                    told[trouble].append(second)
            clock.advance(2)
        return told

    assert list(lines(2_400, "away", "refused").values()) == [[0, 60, 180, 420, 900, 1_500, 2_100]] * 2
    reminders.end()
    assert lines(2, "away") == {"away": [0]}
