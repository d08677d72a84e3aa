"""Programs that these tests need, and that a laptop may lack: then they are skipped with the remedy, in CI too."""

from __future__ import annotations

import shutil

import pytest


def needed(program: str, remedy: str) -> str:
    """Where the program is; without it the running test is skipped."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{program} is missing: {remedy}")
    return found
