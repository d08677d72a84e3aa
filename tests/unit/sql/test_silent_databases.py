"""When a database that missed its deadline is asked again, and by whom."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.clock import Backoff, ManualClock
from reconciler.errors import DatabaseAway, DatabaseSilent
from reconciler.silence import NEVER, Silence
from reconciler.sql.engines import open_engine, reading
from reconciler.sql.silence import silence_of, slowness_of

#: Pauses of these tests.
BRIEF = Backoff(first_seconds=10, longest_seconds=40)


class Asked:
    """A database that answers or does not, and counts how often it is asked."""

    def __init__(self, pauses: Backoff = BRIEF) -> None:
        self.clock = ManualClock()
        self.silence = Silence(pauses=pauses, clock=self.clock)
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


def test_a_command_of_a_person_asks_it_once() -> None:
    asked = Asked(NEVER)
    for _ in range(3):
        with pytest.raises(DatabaseSilent):
            asked.ask()
        asked.clock.advance(3600)
    with pytest.raises(DatabaseSilent, match="no answer within 10 s; it is not asked again"):
        asked.ask()
    assert asked.times == 1


def test_an_engine_says_how_its_database_is_asked_again() -> None:
    url = "postgresql://nobody@127.0.0.1:1/asked_once"
    engine = open_engine(url, statement_seconds=2, silence_pauses=NEVER)
    silence = silence_of(engine)
    assert silence is not None
    with pytest.raises(DatabaseSilent), silence.asking():
        raise DatabaseSilent("no answer")
    with pytest.raises(DatabaseSilent, match="not asked again"), reading(engine):
        pytest.fail("it is not asked")
    engine.dispose()


def test_a_slow_table_says_nothing_of_another_one_nor_of_its_name_in_another_database() -> None:
    engines = [open_engine(f"postgresql://nobody@127.0.0.1:{port}/slow", statement_seconds=2) for port in (1, 2)]
    silences = [silence_of(engine) for engine in engines]
    silences += [slowness_of(engine, table) for engine in engines for table in ("inbox", "outbox")]
    assert len({id(silence) for silence in silences}) == 6
    assert slowness_of(engines[0], "inbox") is silences[2]


@pytest.mark.parametrize(("statement_seconds", "connect_seconds"), [(None, 5), (10.0, 5), (3.5, 4), (0.5, 2)])
def test_a_new_connection_is_waited_for_no_longer_than_a_statement(
    statement_seconds: float | None, connect_seconds: int
) -> None:
    for scheme in ("postgresql", "mysql"):
        engine = open_engine(f"{scheme}://nobody@127.0.0.1:1/none", statement_seconds=statement_seconds)
        told: list[Any] = []

        def note(_dialect: Any, _record: Any, _arguments: Any, given: Any, told: list[Any] = told) -> None:
            told.append(given["connect_timeout"])

        sa.event.listen(engine, "do_connect", note)
        with pytest.raises(DatabaseAway), reading(engine):
            pytest.fail("nobody is there")
        assert set(told) == {connect_seconds}
        engine.dispose()
