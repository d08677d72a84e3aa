"""A process that does jobs and nothing else, as the web process does: python -m tests.acceptance.job_process CONFIG."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from reconciler.commands.acts.job_worker import working_on_jobs
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections

#: The next process takes a dead one's job after this.
LEASE_SECONDS = 3.0


def main(config: str) -> None:
    """Until it is killed."""
    with (
        Connections(load_settings(Path(config), {})) as connections,
        working_on_jobs(connections, lease_seconds=LEASE_SECONDS),
    ):
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
