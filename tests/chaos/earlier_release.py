"""The code of the last release, to run beside today's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.chaos.hosts import ROOT, environment_of

#: 0.2.0.
COMMIT = "56d7d70a610a378fb44687bb4e48ce6e41bccbe3"


def missing() -> str | None:
    """None, or how to get the history that the code is taken from."""
    command = ["git", "cat-file", "-e", f"{COMMIT}^{{tree}}"]
    try:
        known = subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0
    except OSError:
        known = False
    return None if known else "the repository's history is missing: git clone without --depth"


def check_out(folder: Path) -> Path:
    """A checkout without a repository; returns its folder."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    packages = "checkback_consumers, checkback_producers, reconciler"
    asked = [sys.executable, "-c", f"import {packages}; print(*(one.__file__ for one in ({packages})))"]
    told = subprocess.run(asked, cwd="/", env=environment_of(folder), check=True, capture_output=True, text=True)
    assert all(Path(one).is_relative_to(folder) for one in told.stdout.split()), "today's code beside itself"
    return folder
