"""The Python part of rocketmq-client-python 2.0.0, in a folder of its own, never in the project's environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.brokers.jars import DownloadFailed, cache_folder, locked

PACKAGE = "rocketmq-client-python==2.0.0"
INSTALL_SECONDS = 300


def package_folder() -> Path:
    """A folder for sys.path with the package in it, made once and kept in the cache folder."""
    folder = cache_folder() / "rocketmq-client-python-2.0.0"
    done = folder / ".complete"
    if done.exists():
        return folder
    with locked("rocketmq-client-python"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--target", str(folder), PACKAGE]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
            if ran.returncode != 0:
                raise DownloadFailed(f"{' '.join(command)}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
            done.touch()
    return folder
