"""pytest in a process of its own, in a folder of tests, with the plug-in `checkback` as its entry point loads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.polling import PATIENCE

__all__ = ["PATHS", "paths_with", "run_pytest", "run_python"]

ROOT = Path(__file__).parents[3]
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "producers", ROOT / "consumers")))
#: In an environment that was made before there was an entry point.
_CONFTEST = """
from reconciler.testing import pytest_plugin

def pytest_configure(config):
    if not config.pluginmanager.has_plugin("checkback"):
        config.pluginmanager.register(pytest_plugin, "checkback")
"""


def run_python(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python, with the packages of this tree, and `variables` in its environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**clean, "PYTHONPATH": PATHS, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=150 * PATIENCE,
    )


def paths_with(folder: Path, *packages: str) -> str:
    """PYTHONPATH on which these packages, installed for a test by night, come before those of this environment."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(folder)]
    subprocess.run([*pip, *packages], check=True, timeout=150 * PATIENCE)
    return os.pathsep.join((str(folder), PATHS))


def run_pytest(
    folder: Path, *arguments: str, start: tuple[str, ...] = ("-m", "pytest"), **variables: str
) -> subprocess.CompletedProcess[str]:
    """With warnings as errors, and `variables` in its environment; `start`: what runs pytest."""
    (folder / "conftest.py").write_text(_CONFTEST)
    return run_python(*start, "-p", "no:cacheprovider", "-W", "error", *arguments, ".", folder=folder, **variables)
