"""Stopping and scheduling of the daemon: systemd is told, missed turns are counted, a hung turn is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.clock import ManualClock, SystemClock
from reconciler.errors import DatabaseAway, RedisAway
from reconciler.wiring.scheduler import DrainGaveUp, StopSignals, Tick, TickRunner, notify_systemd, serve_when_possible
from tests.polling import eventually

ROOT = Path(__file__).parents[3]


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a unit of Type=notify."""
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = os.path.relpath(tmp_path / "notify.sock")  # a socket's path has at most 107 bytes
    receiver.bind(path)
    receiver.settimeout(20)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with receiver:
        yield receiver


def test_systemd_is_told_about_start_and_stop(systemd: socket.socket) -> None:
    stop = threading.Event()
    daemon = TickRunner([Tick(name="job", interval_seconds=60, run=lambda: None)], stop=stop, clock=SystemClock())
    thread = threading.Thread(target=daemon.run)
    thread.start()
    assert systemd.recv(100) == b"READY=1"
    stop.set()
    assert systemd.recv(100) == b"STOPPING=1"
    thread.join(60)
    assert not thread.is_alive()


def test_service_that_waits_for_a_dependency_counts_as_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, clock = threading.Event(), ManualClock()
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        answers: list[Exception | None] = [RedisAway("away"), None]

        def serve() -> None:
            answer = answers.pop(0)
            if answer is not None:
                raise answer

        serve_when_possible(serve, stop=stop, clock=clock)
        assert receiver.recv(100) == b"READY=1"
    assert answers == []


def test_start_that_waits_is_one_line_for_each_trouble_and_seldom_another(caplog: pytest.LogCaptureFixture) -> None:
    """One line every two seconds is 43 200 lines a day for each process that waits."""
    stop, clock = threading.Event(), ManualClock()
    answers: list[Exception | None] = [DatabaseAway("away") if n == 100 else RedisAway("away") for n in range(450)]

    def serve() -> None:
        answer = answers.pop()
        if answer is not None:
            raise answer

    answers[0] = None
    serve_when_possible(serve, stop=stop, clock=clock)
    told = [record.__dict__["cause"] for record in caplog.records if record.msg == "start_waits"]
    assert (told.count("DatabaseAway"), told.count("RedisAway")) == (1, 4)
    assert answers == []


def test_abstract_socket_of_systemd_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"reconciler-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        receiver.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify_systemd("READY=1")
        assert receiver.recv(100) == b"READY=1"


def test_systemd_that_does_not_listen_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", os.path.relpath(tmp_path / "nobody"))
    notify_systemd("READY=1")
    assert "systemd_not_notified" in caplog.text


def test_turns_that_nobody_started_are_counted_when_the_next_one_runs() -> None:
    clock = ManualClock()
    tick = Tick(name="job", interval_seconds=10, run=lambda: None)
    daemon = TickRunner([tick], stop=threading.Event(), clock=clock)
    daemon._turn(tick)
    clock.advance(10.8)  # jitter is no missed turn
    daemon._turn(tick)
    assert daemon.skipped["job", "missed"] == 0
    clock.advance(40)  # the process was stopped for a while: three turns never began
    daemon._turn(tick)
    assert daemon.skipped["job", "missed"] == 3


def test_turn_that_overlapped_is_not_counted_as_missed_again() -> None:
    clock = ManualClock()
    tick = Tick(name="job", interval_seconds=10, run=lambda: None)
    daemon = TickRunner([tick], stop=threading.Event(), clock=clock)
    daemon._turn(tick)
    daemon._overlaps["job"] += 2
    clock.advance(30)
    daemon._turn(tick)
    assert daemon.skipped["job", "missed"] == 0


def test_turn_does_not_begin_after_the_stop() -> None:
    stop = threading.Event()
    stop.set()
    turns: list[int] = []
    tick = Tick(name="job", interval_seconds=10, run=lambda: turns.append(1))
    TickRunner([tick], stop=stop, clock=SystemClock())._turn(tick)
    assert not turns


def test_turn_that_hangs_is_named_and_left_behind_with_130() -> None:
    begun, finish, stop = threading.Event(), threading.Event(), threading.Event()

    def turn() -> None:
        begun.set()
        finish.wait(60)

    daemon = TickRunner(
        [Tick(name="rounds", interval_seconds=60, run=turn)], stop=stop, clock=SystemClock(), drain_seconds=0.2
    )

    def ask_for_a_stop() -> None:
        begun.wait(60)
        stop.set()

    stopper = threading.Thread(target=ask_for_a_stop)
    stopper.start()
    with pytest.raises(DrainGaveUp, match="rounds did not end within") as caught:
        daemon.run()
    assert caught.value.exit_code == 130
    stopper.join()
    finish.set()


_HANGS = """
import sys, threading
from reconciler.clock import SystemClock
from reconciler.wiring.scheduler import TickRunner, DrainGaveUp, StopSignals, Tick
stop = StopSignals()
stop.install()
def turn():
    print("hangs", flush=True)
    threading.Event().wait()
daemon = TickRunner([Tick(name="job", interval_seconds=60, run=turn)], stop=stop.requested, clock=SystemClock(),
                drain_seconds=float(sys.argv[1]))
try:
    daemon.run()
except DrainGaveUp as error:
    sys.exit(error.exit_code)
sys.exit(stop.exit_code)
"""


def hanging(drain_seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HANGS, str(drain_seconds)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "hangs\n"
    process.stdout.close()
    return process


def test_process_ends_after_the_bound_although_a_turn_hangs() -> None:
    process = hanging(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130


def test_second_sigterm_ends_at_once_although_a_turn_hangs() -> None:
    process = hanging(600)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)  # it waits for the turn

    def ends() -> bool:
        process.send_signal(signal.SIGTERM)  # again: two that come before the first is taken are one
        return process.poll() is not None

    eventually(ends, within_seconds=60)
    assert process.wait(60) == 130


def test_exit_code_tells_sigint_from_sigterm() -> None:
    before = set(threading.enumerate())
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        stop = StopSignals()
        stop.install()
        os.kill(os.getpid(), number)
        eventually(stop.requested.is_set, within_seconds=60)
        assert stop.exit_code == code
        os.close(signal.set_wakeup_fd(-1))
        eventually(lambda: set(threading.enumerate()) <= before, within_seconds=60)


_STOPPED_INSIDE_WAIT = """
import os, signal
from reconciler.wiring.scheduler import StopSignals
stop = StopSignals()
stop.install()
with stop.requested._cond:  # as Event.wait does while it enters and leaves
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):
        pass
stop.requested.wait()
"""


def test_a_stop_that_comes_while_the_main_thread_enters_its_wait_is_noticed() -> None:
    assert (
        subprocess.run([sys.executable, "-c", _STOPPED_INSIDE_WAIT], cwd=ROOT, timeout=30, check=False).returncode == 0
    )
