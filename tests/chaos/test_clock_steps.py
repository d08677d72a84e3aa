"""A wall clock that is stepped under a running process, with every clock of the process stepped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.chaos.hosts import CLOCK_FILE, PRELOADED, ROOT, build_clock, set_clock_file
from tests.polling import eventually
from tests.services.processes import Child

TICKING = """
import signal, sys, threading
from reconciler.clock import SystemClock
from reconciler.wiring.scheduler import TickRunner, StopSignals, Tick
from pathlib import Path

ticks = Path(sys.argv[1])
stop = StopSignals()
stop.install()
def turn():
    with ticks.open("a") as file:
        file.write(".")
TickRunner([Tick(name="job", interval_seconds=0.1, run=turn)], stop=stop.requested, clock=SystemClock()).run()
"""


@pytest.mark.parametrize("seconds", [-3600.0, 10 * 365 * 86_400.0])
def test_turns_go_on_at_once_after_the_clock_was_set_back_by_an_hour_or_ahead_by_ten_years(
    tmp_path: Path, seconds: float
) -> None:
    library = build_clock(tmp_path)
    if library is None:
        pytest.skip("no C compiler: apt-get install gcc libc6-dev")
    clock, ticks = tmp_path / "clock", tmp_path / "ticks"
    set_clock_file(clock, 0.0)
    ticks.touch()
    child = Child(
        [sys.executable, "-c", TICKING, str(ticks)],
        log=tmp_path / "log",
        cwd=ROOT,
        environment={**os.environ, PRELOADED: str(library), CLOCK_FILE: str(clock), "PYTHONPATH": str(ROOT)},
    )
    try:
        for wrong_by in (seconds, 0.0, 0.0):
            wanted = ticks.stat().st_size + 15  # more than can be due before a step is noticed
            eventually(lambda wanted=wanted: ticks.stat().st_size > wanted, within_seconds=30, message="ticks")  # type: ignore[misc]
            set_clock_file(clock, wrong_by)
        assert child.stop() == 0
    finally:
        child.kill()
