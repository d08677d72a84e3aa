"""Builds the programs of this folder from pinned versions of the clients, each once, in the cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.brokers.jars import DownloadFailed, cache_folder, locked

SOURCES = Path(__file__).parent
BUILD_SECONDS = 900


def go_missing() -> str | None:
    """None, or how to get Go."""
    return None if shutil.which("go") else "go is missing: apt-get install golang, or https://go.dev/dl/"


def go_program(name: str) -> list[str]:
    """The program of a Go module."""
    folder = _built(name, lambda source, out: _run(["go", "build", "-o", str(out / "client"), "."], source))
    return [str(folder / "client")]


def _built(name: str, build: Callable[[Path, Path], None]) -> Path:
    """The folder with what `build(source, folder)` made. Its name has a digest of the sources."""
    source = SOURCES / name
    stamp = hashlib.sha256()
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        stamp.update(file.relative_to(source).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    folder = cache_folder() / "programs" / f"{name}-{stamp.hexdigest()[:12]}"
    with locked(f"program-{name}"):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
            build(source, partial)
            partial.rename(folder)  # whole from the first moment that it can be seen
    return folder


def _run(command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> None:
    environment = os.environ | dict(variables or {})
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        raise DownloadFailed(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
