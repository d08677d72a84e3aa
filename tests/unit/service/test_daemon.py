"""The daemon: a dependency that is away costs a turn, a stop finishes the turn in hand, nothing runs twice at once."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from reconciler.clock import ManualClock, SystemClock
from reconciler.errors import ConfigurationError, RedisAway
from reconciler.wiring import scheduler
from reconciler.wiring.scheduler import Tick, TickRunner
from tests.polling import eventually


def started(daemon: TickRunner) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def body() -> None:
        try:
            daemon.run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    return thread, raised


def run_until(turn: Callable[[], object], reached: Callable[[], bool], interval_seconds: float = 0.05) -> TickRunner:
    stop = threading.Event()
    daemon = TickRunner(
        [Tick(name="job", interval_seconds=interval_seconds, run=turn)], stop=stop, clock=SystemClock(), drain_seconds=5
    )
    thread, raised = started(daemon)
    try:
        eventually(reached, within_seconds=60)
    finally:
        stop.set()
        thread.join(60)
    assert not raised
    return daemon


def test_dependency_that_is_away_costs_its_turns_only_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        if len(turns) < 3:
            raise RedisAway("gone")

    daemon = run_until(turn, lambda: len(turns) >= 4)
    assert daemon.skipped["job", "away"] == 2
    told = [vars(line) for line in caplog.records if line.msg == "turn_skipped"]
    # A busy machine skips turns of its own, which have another cause.
    assert [line["job"] for line in told if line["cause"] == "RedisAway"] == ["job"]
    (resumed,) = [vars(line) for line in caplog.records if line.msg == "turns_resumed"]
    assert resumed["skipped"] == 2


@pytest.mark.parametrize(("seconds", "last"), [(600.0, ()), (0.0, ("gone", "refused"))])
def test_another_trouble_of_a_dependency_that_is_away_is_logged_too(
    seconds: float, last: tuple[str, ...], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trouble that is back is logged again some time after it was logged: the last line names what lasts."""
    monkeypatch.setattr(scheduler, "TOLD_AGAIN_SECONDS", seconds)
    turns: list[int] = []
    gone, refused = RedisAway("gone"), RedisAway("no permission", remedy="grant it to the user")

    def turn() -> None:
        turns.append(1)
        if len(turns) < 7:
            raise (gone, gone, refused, refused, gone, refused)[len(turns) - 1]

    run_until(turn, lambda: len(turns) >= 8)
    told = [vars(line)["error"] for line in caplog.records if line.msg == "turn_skipped"]
    texts = {"gone": str(gone), "refused": str(refused)}
    assert [line for line in told if line in texts.values()] == [texts[one] for one in ("gone", "refused", *last)]


def test_a_trouble_that_came_back_soon_and_lasts_is_logged_again_once() -> None:
    away = scheduler._AwayTurns()
    gone, refused = ("RedisAway", ""), ("RedisAway", "grant it to the user")
    seen = [(0.0, gone), (60.0, refused), *((at, gone) for at in (120.0, 599.0, 600.0, 660.0, 9_999.0))]
    assert [at for at, trouble in seen if away.add(trouble, at)] == [0.0, 60.0, 600.0]


def test_bug_in_one_turn_does_not_end_the_service(caplog: pytest.LogCaptureFixture) -> None:
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        if len(turns) == 1:
            raise ZeroDivisionError

    daemon = run_until(turn, lambda: len(turns) >= 3)
    assert daemon.skipped["job", "ZeroDivisionError"] == 1
    assert "turn_failed" in caplog.text


def test_configuration_error_ends_the_service_with_its_reason() -> None:
    stop = threading.Event()

    def turn() -> None:
        raise ConfigurationError("maxmemory-policy is allkeys-lru")

    thread, raised = started(
        TickRunner([Tick(name="job", interval_seconds=0.05, run=turn)], stop=stop, clock=SystemClock())
    )
    thread.join(60)
    assert [type(error) for error in raised] == [ConfigurationError]
    assert stop.is_set()


def test_turn_longer_than_its_interval_never_runs_twice_at_once(caplog: pytest.LogCaptureFixture) -> None:
    running = threading.Semaphore(1)
    overlaps: list[int] = []
    turns: list[int] = []
    gate = threading.Event()

    def turn() -> None:
        if not running.acquire(blocking=False):
            overlaps.append(1)
        gate.wait(0.15)
        turns.append(1)
        running.release()

    daemon = run_until(turn, lambda: len(turns) >= 3)
    assert not overlaps
    assert daemon.skipped["job", "still running"] > 0
    assert "still running" in {vars(line)["cause"] for line in caplog.records if line.msg == "turn_skipped"}


def test_stop_waits_for_the_turn_in_hand() -> None:
    begun, finish = threading.Event(), threading.Event()
    done: list[int] = []

    def turn() -> None:
        begun.set()
        finish.wait(60)
        done.append(1)

    stop = threading.Event()
    daemon = TickRunner([Tick(name="job", interval_seconds=0.05, run=turn)], stop=stop, clock=SystemClock())
    thread, _ = started(daemon)
    assert begun.wait(60)
    stop.set()
    thread.join(0.3)  # a daemon that does not wait ends in this time
    assert thread.is_alive()
    finish.set()
    thread.join(60)
    assert done == [1]


def test_drain_is_bounded() -> None:
    begun, finish = threading.Event(), threading.Event()

    def turn() -> None:
        begun.set()
        finish.wait(60)

    stop = threading.Event()
    daemon = TickRunner(
        [Tick(name="job", interval_seconds=0.05, run=turn)], stop=stop, clock=SystemClock(), drain_seconds=0.2
    )
    thread, _ = started(daemon)
    assert begun.wait(60)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    finish.set()


def test_a_begun_job_never_runs_twice_at_once_and_what_it_skipped_meanwhile_is_one_turn_when_it_is_done() -> None:
    gate, entered = threading.Event(), threading.Semaphore(0)
    turns: list[int] = []

    def long() -> None:
        turns.append(1)
        entered.release()
        gate.wait(60)

    ticks = [
        Tick(name="beginning", interval_seconds=3600, run=lambda: None),
        Tick(name="long", interval_seconds=0.01, run=long, is_begun=True),
    ]
    clock = ManualClock()
    daemon = TickRunner(ticks, stop=threading.Event(), clock=clock)
    daemon.begin("long")
    assert entered.acquire(timeout=60)
    daemon.begin("long")
    daemon.begin("long")
    assert daemon.skipped == {("long", "still running"): 2}
    clock.advance(60)
    assert daemon.lateness_seconds()["long"] > 50
    gate.set()
    assert entered.acquire(timeout=60), "at once, without a beginning"
    eventually(lambda: "long" not in daemon.lateness_seconds(), within_seconds=60, message="nothing waits for it")
    assert len(turns) == 2
    clock.advance(3600)
    daemon.begin("long")
    assert entered.acquire(timeout=60)
    assert len(turns) == 3
    assert daemon.skipped == {("long", "still running"): 2}, "it was not to begin meanwhile: none is missed"


def test_a_begun_turn_that_failed_is_followed_by_none_before_its_next_beginning() -> None:
    gate, entered, turns = threading.Event(), threading.Event(), list[int]()

    def away() -> None:
        turns.append(1)
        entered.set()
        gate.wait(60)
        raise RedisAway("away")

    daemon = TickRunner(
        [Tick(name="long", interval_seconds=0.01, run=away, is_begun=True)], stop=threading.Event(), clock=ManualClock()
    )
    daemon.begin("long")
    assert entered.wait(60)
    daemon.begin("long")
    gate.set()
    eventually(lambda: "long" not in daemon.lateness_seconds(), within_seconds=60, message="it has ended")
    assert len(turns) == 1
    assert daemon.skipped == {("long", "still running"): 1, ("long", "away"): 1}


def test_turns_that_follow_each_other_leave_those_that_wait_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock goes to whoever asks first: to the turn that has just ended, and never to one that has to wake up."""
    monkeypatch.setattr(scheduler, "BEGUN_TURNS_MAX", 2)
    ran = {name: threading.Event() for name in ("late", "later", "last")}

    def flood(name: str) -> None:
        daemon.begin(name)  # its interval is over, and it still runs
        ran["last"].wait(0.01)

    def is_over() -> bool:
        return all(one.is_set() for one in ran.values()) or daemon.skipped["flood 1", "still running"] > 100

    flooded = [
        Tick(name=name, interval_seconds=0.01, run=partial(flood, name), is_begun=True)
        for name in ("flood 1", "flood 2")
    ]
    others = [Tick(name=name, interval_seconds=1, run=one.set, is_begun=True) for name, one in ran.items()]
    stop = threading.Event()
    daemon = TickRunner([*flooded, *others], stop=stop, clock=SystemClock())
    try:
        for tick in (*flooded, *others):
            daemon.begin(tick.name)
        eventually(is_over, within_seconds=60, message="each had a turn, or the flood a hundred")
        assert [name for name, one in ran.items() if not one.is_set()] == []
    finally:
        stop.set()
    eventually(lambda: not daemon.lateness_seconds(), within_seconds=60, message="all have ended")
