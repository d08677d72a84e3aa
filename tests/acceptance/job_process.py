"""A process that does jobs and nothing else, as the web process does: python -m tests.acceptance.job_process CONFIG."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from reconciler.commands.acts.job_worker import working_on_jobs
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections


def main(config: str) -> None:
    """Until it is killed."""
    with (
        Connections(load_settings(Path(config), {})) as connections,
        working_on_jobs(connections),
    ):
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
