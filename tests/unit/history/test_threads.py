"""The two threads: no round waits for them, a part that hangs holds up no other, everything is sealed at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import ManualClock, SystemClock
from reconciler.history.service import HistoryService
from reconciler.policy.events import ShardRoundRan
from reconciler.policy.ports.history import Capture, RoundMark
from tests.polling import eventually
from tests.unit.history.house import START_MS, House, ScriptedRounds, shard, some_keys


class SlowRounds(ScriptedRounds):
    """Answers when the test lets it."""

    may_answer: threading.Event

    def capture(self, shard: Any, *, after: RoundMark | None) -> Capture:
        self.may_answer.wait(60)
        return super().capture(shard, after=after)


@contextmanager
def service_of(house: House, *, seal_seconds: float = 300.0) -> Iterator[HistoryService]:
    service = HistoryService(
        sink=house.sink,
        recorder=house.recorder,
        maintenance=house.maintenance,
        counters=house.counters,
        clock=SystemClock(),
        seal_seconds=seal_seconds,
    )
    try:
        yield service
    finally:
        service.close()


def test_the_start_waits_for_rounds_of_before_and_the_end_seals_everything(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.rounds.run(shard(0), announced=some_keys(2))
    with service_of(house) as service:
        assert service.start(within_seconds=60)
        assert house.counters.rounds_captured == 1
        house.round(1, announced=some_keys(1, seed=1))
        assert service.close(within_seconds=60)
    assert house.keys("announced") == sorted(some_keys(2) + some_keys(1, seed=1))
    assert {(row["shard"], row["kind"]) for row in house.rows("snapshot")} == {(1, "SHUTDOWN")}
    assert not list(house.spool_folder.iterdir()), "nothing is left to adopt"


def test_a_start_does_not_wait_longer_than_its_bound_for_a_redis_that_hangs(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    rounds = SlowRounds(clock)
    rounds.may_answer = threading.Event()
    house = House(tmp_path, rounds=rounds)
    with service_of(house) as service:
        assert not service.start(within_seconds=0.05)
        house.sink.emit(ShardRoundRan(done=rounds.run(shard(0), announced=some_keys(1))))
        rounds.may_answer.set()
        eventually(lambda: house.counters.rounds_captured == 1, within_seconds=60)


def test_rounds_are_captured_while_sealing_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path)
    hangs, may_go_on = threading.Event(), threading.Event()
    real = house.store.write

    def slow(*arguments: Any) -> Any:
        hangs.set()
        may_go_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(house.store, "write", slow)
    with service_of(house, seal_seconds=0.01) as service:
        service.start(within_seconds=60)
        house.round(0, announced=some_keys(1))
        assert hangs.wait(60)
        for n in range(1, 4):
            house.round(0, announced=some_keys(1, seed=n))
            eventually(lambda n=n: house.counters.rounds_captured == n + 1, within_seconds=60)  # type: ignore[misc]
        may_go_on.set()
        assert service.close(within_seconds=60)
    assert [row["generation"] for row in house.rows("round")] == [1, 2, 3, 4]


def test_an_end_does_not_wait_longer_than_its_bound_and_the_next_start_seals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    may_go_on = threading.Event()
    real = house.store.write

    def hang(*arguments: Any) -> Any:
        may_go_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(house.store, "write", hang)
    with service_of(house) as service:
        service.start(within_seconds=60)
        house.round(0, announced=some_keys(1))
        assert not service.close(within_seconds=0.2)
        assert house.rows("announced") == []
        may_go_on.set()
        assert service.close(within_seconds=60)
    assert house.keys("announced") == some_keys(1)


def test_a_bug_in_one_turn_does_not_end_the_history(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = House(tmp_path)
    real, calls = house.rounds.capture, []

    def broken(of: Any, *, after: RoundMark | None) -> Capture:
        calls.append(of)
        if len(calls) == 3:
            raise AssertionError("a bug")
        return real(of, after=after)

    house.rounds.capture = broken  # type: ignore[method-assign, assignment]
    with service_of(house) as service:
        service.start(within_seconds=60)
        house.round(0, announced=some_keys(1))
        eventually(lambda: house.counters.rounds_captured == 1, within_seconds=60)
    assert "history_turn_failed" in caplog.text
    assert house.keys("announced") == some_keys(1)


def test_a_bug_of_every_turn_fills_the_log_or_is_logged_once_and_never_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(tmp_path)
    service = HistoryService(
        sink=house.sink,
        recorder=house.recorder,
        maintenance=house.maintenance,
        counters=house.counters,
        clock=house.clock,
        seal_seconds=1.0,
    )

    def broken(error: Exception) -> None:
        raise error

    logged = []
    for seconds in (0.0, 59.999, 0.001):
        house.clock.advance(seconds)
        service._guarded(lambda: broken(ValueError("a bug")))
        logged.append(len(caplog.records))
    service._guarded(lambda: broken(KeyError("another one")))
    assert [*logged, len(caplog.records)] == [1, 1, 2, 3]
    assert {record.message for record in caplog.records} == {"history_turn_failed"}
