"""A virtual environment with the wheel rocketmq 0.4.4, which carries librocketmq.so.

The wheel and other packages install the same module, so it never enters the project's own environment. The
plug-ins' base dependencies are there too: put the repository on PYTHONPATH to run the adapters in it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from tests.brokers.jars import DownloadFailed, cache_folder, locked
from tests.services.locks import constraints

ROOT = Path(__file__).resolve().parents[2]
WHEEL = "rocketmq==0.4.4"
ATTEMPTS = 3
INSTALL_SECONDS = 300


def wheel_python() -> Path:
    """The Python of the environment, made once and kept in the cache folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = [WHEEL, *project["dependencies"]]
    stamp = hashlib.sha256(f"{sys.version} {sys.prefix} {packages}".encode()).hexdigest()[:12]
    folder = cache_folder() / "wheel" / stamp
    python = folder / "bin" / "python"
    done = folder / ".complete"
    if done.exists():
        return python
    with locked("wheel"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            _install(folder, python, packages)
            done.touch()
    return python


def _install(folder: Path, python: Path, packages: list[str]) -> None:
    steps: list[list[str]] = [
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
         "--constraint", str(constraints(folder.parent)), *packages],
    ]  # fmt: skip
    for step in steps:
        for attempt in range(1, ATTEMPTS + 1):
            done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
            if done.returncode == 0:
                break
            if attempt == ATTEMPTS:
                raise DownloadFailed(f"{' '.join(step)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            time.sleep(2.0 * attempt)
