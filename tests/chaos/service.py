"""The reconciler's own processes under chaos: the installed command, with at most one step that kills it.

Its host's wall clock may be set wrong: by a library loaded before libc, else here, where only the product's own clock
hears of it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from reconciler.__main__ import main as reconciler
from reconciler.clock import SystemClock
from tests.chaos import failpoints
from tests.chaos.hosts import CLOCK_FILE, PRELOADED, read_clock_file
from tests.chaos.job import ChaosJob


def set_clock_wrong(file: Path) -> None:
    """Wall time is wrong by the file's seconds; intervals stay monotonic, as when a machine's clock is stepped."""
    right = SystemClock.now_ms

    def now_ms(clock: SystemClock) -> int:
        return right(clock) + round(1000 * read_clock_file(file))

    SystemClock.now_ms = now_ms  # type: ignore[method-assign,assignment]  # this process only


def main(job_path: str, role: str) -> None:
    """Ends as the command does."""
    failpoints.install(role)
    job = ChaosJob.read(Path(job_path))
    if PRELOADED not in os.environ:
        set_clock_wrong(Path(os.environ[CLOCK_FILE]))
    config = job.sweep_config if role == "sweep" else job.config
    sys.argv = ["reconciler", role, "--config", str(config)]
    reconciler()
