"""Builds the programs of this folder from pinned versions of the clients, each once, in the cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.brokers.jars import DownloadFailed, cache_folder, locked

SOURCES = Path(__file__).parent
BUILD_SECONDS = 900


def go_missing() -> str | None:
    """None, or how to get Go."""
    return None if shutil.which("go") else "go 1.24 is missing: https://go.dev/dl/"


def cargo_missing() -> str | None:
    """None, or how to get Rust."""
    if shutil.which("cargo"):
        return None
    return "cargo is missing: apt-get install cargo-web rustc-web (Debian), or https://rustup.rs"


def npm_missing() -> str | None:
    """None, or how to get Node."""
    return None if shutil.which("npm") and shutil.which("node") else "npm is missing: apt-get install nodejs npm"


def go_program(name: str) -> list[str]:
    """The program of a Go module."""
    folder = _built(name, lambda source, out: _run(["go", "build", "-o", str(out / "client"), "."], source))
    return [str(folder / "client")]


def rust_program(name: str) -> list[str]:
    """The program of a crate, of the versions in its Cargo.lock."""

    def build(source: Path, out: Path) -> None:
        target = cache_folder() / "programs" / f"{name}-target"  # half a minute instead of three, the next time
        _run(["cargo", "build", "--quiet", "--locked"], source, {"CARGO_TARGET_DIR": str(target)})
        shutil.copy(target / "debug" / "client", out)

    return [str(_built(name, build) / "client")]


def node_program(name: str) -> list[str]:
    """The script of a package, beside what its package-lock.json names. No script of a package is run."""

    def build(source: Path, out: Path) -> None:
        shutil.copytree(source, out, dirs_exist_ok=True)
        _run(["npm", "ci", "--ignore-scripts", "--no-fund", "--no-audit"], out)

    return ["node", str(_built(name, build) / "client.js")]


def python_program(name: str) -> list[str]:
    """The script, run by a Python whose environment has what its requirements.txt names."""

    def build(source: Path, out: Path) -> None:
        _run([sys.executable, "-m", "venv", str(out / "venv")], source)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]
        _run([str(out / "venv/bin/python"), *install, "-r", "requirements.txt"], source)

    return [str(_built(name, build) / "venv/bin/python"), str(SOURCES / name / "client_python.py")]


def java_program(name: str, jars: Callable[[], Path]) -> list[str]:
    """The class of a folder, compiled against the jars of the client."""
    path = jars()

    def build(source: Path, out: Path) -> None:
        _run(["javac", "-nowarn", "-Xlint:-options", "-cp", f"{path}/*", "-d", str(out), "Client.java"], source)

    classes = _built(name, build, against=path.name)
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options.append("-Drocketmq.client.rebalance.waitInterval=1000")
    return ["java", *options, "-cp", os.pathsep.join([str(classes), f"{path}/*"]), "Client"]


def _built(name: str, build: Callable[[Path, Path], None], *, against: str = "") -> Path:
    """The folder with what `build(source, folder)` made. Its name has a digest of the sources, and of `against`."""
    source = SOURCES / name
    stamp = hashlib.sha256(against.encode())
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        stamp.update(file.relative_to(source).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    folder = cache_folder() / "programs" / f"{name}-{stamp.hexdigest()[:12]}"
    with locked(f"program-{name}"):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
            try:
                build(source, partial)
                partial.rename(folder)  # whole from the first moment that it can be seen
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


def _run(command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> None:
    environment = os.environ | dict(variables or {})
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        raise DownloadFailed(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
