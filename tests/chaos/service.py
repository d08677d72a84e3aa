"""The reconciler's own processes under chaos: `python -m tests.chaos.service JOB.json run|sweep`.

The installed command, with at most one step that kills it, and a wall clock that the run may set wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path

from reconciler.__main__ import main as reconciler
from reconciler.clock import SystemClock
from tests.chaos import failpoints
from tests.chaos.job import ChaosJob


def set_clock_wrong(job: ChaosJob) -> None:
    """Wall time is what the offset's file says; intervals stay monotonic, as when somebody steps a machine's clock."""
    right = SystemClock.now_ms

    def now_ms(clock: SystemClock) -> int:
        try:
            return right(clock) + int(job.clock_offset.read_text())
        except (FileNotFoundError, ValueError):
            return right(clock)

    SystemClock.now_ms = now_ms  # type: ignore[method-assign,assignment]  # this process only


def main(job_path: str, role: str) -> None:
    """Ends as the command does."""
    failpoints.install(role)
    job = ChaosJob.read(Path(job_path))
    if role == "run":
        set_clock_wrong(job)
    sys.argv = ["reconciler", role, "--config", str(job.config)]
    reconciler()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
