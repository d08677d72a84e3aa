"""When a database that missed its deadline is asked again, and by whom."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from reconciler.clock import Backoff, ManualClock
from reconciler.errors import DatabaseAway, DatabaseSilent
from reconciler.sql.silence import Silence


class Asked:
    """A database that answers or does not, and counts how often it is asked."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.silence = Silence(pauses=Backoff(first_seconds=10, longest_seconds=40), clock=self.clock)
        self.is_silent = True
        self.times = 0

    def ask(self) -> None:
        """One statement."""
        with self.silence.asking():
            self.times += 1
            if self.is_silent:
                raise DatabaseSilent("no answer within 10 s")


def test_it_is_asked_again_after_longer_and_longer_pauses() -> None:
    asked = Asked()
    times = []
    for second in range(200):
        before = asked.times
        with suppress(DatabaseSilent):
            asked.ask()
        if asked.times > before:
            times.append(second)
        asked.clock.advance(1)
    assert times == [0, 10, 30, 70, 110, 150, 190]


def test_an_answer_ends_the_silence_for_all() -> None:
    asked = Asked()
    for _ in range(3):
        with suppress(DatabaseSilent):
            asked.ask()
        asked.clock.advance(10)
    asked.is_silent = False
    asked.clock.advance(40)
    before = asked.times
    for _ in range(5):
        asked.ask()
    assert asked.times == before + 5


def test_one_thread_at_a_time_asks_a_silent_database() -> None:
    asked = Asked()
    with suppress(DatabaseSilent):
        asked.ask()
    asked.clock.advance(10)
    inside, go_on = threading.Event(), threading.Event()

    def probe() -> None:
        with asked.silence.asking():
            inside.set()
            go_on.wait(60)

    thread = threading.Thread(target=probe)
    thread.start()
    assert inside.wait(60)
    with pytest.raises(DatabaseSilent, match="asked again later"):
        asked.ask()
    go_on.set()
    thread.join(60)
    asked.is_silent = False
    asked.ask()


def test_the_thread_that_asks_may_open_another_block_within_its_own() -> None:
    asked = Asked()
    with suppress(DatabaseSilent):
        asked.ask()
    asked.clock.advance(10)
    asked.is_silent = False
    with asked.silence.asking():
        asked.ask()
    asked.ask()


def test_a_refusal_is_an_answer_and_another_error_says_nothing() -> None:
    asked = Asked()
    with suppress(DatabaseSilent):
        asked.ask()
    asked.clock.advance(10)
    with pytest.raises(ZeroDivisionError), asked.silence.asking():
        raise ZeroDivisionError
    with suppress(DatabaseSilent):
        asked.ask()  # the error has left the place free, and the silence as it was
    assert asked.times == 2
    asked.clock.advance(20)
    with pytest.raises(DatabaseAway), asked.silence.asking():
        raise DatabaseAway("connection refused")
    asked.is_silent = False
    asked.ask()


def test_statements_that_run_beside_the_first_one_that_is_late_lengthen_no_pause() -> None:
    asked = Asked()
    with suppress(DatabaseSilent), asked.silence.asking(), asked.silence.asking(), asked.silence.asking():
        raise DatabaseSilent("all three are late")
    with suppress(DatabaseSilent):
        asked.ask()
    assert asked.times == 0
    asked.clock.advance(10)
    with suppress(DatabaseSilent):
        asked.ask()
    assert asked.times == 1
