"""Brings the jars of brokers, Java clients and what stands beside them, by Maven from the poms here, into a cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

POMS = Path(__file__).parent / "poms"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
#: Only `make test-lake` takes it.
LAKE = "lake-4.1"
ATTEMPTS = 4
DOWNLOAD_SECONDS = 600


class DownloadFailed(RuntimeError):
    """Maven or pip did not bring what a test needs; the message carries the end of its output."""


def cache_folder() -> Path:
    """CHECKBACK_TEST_CACHE, else `checkback-reconciler` in the user's cache folder; kept between runs."""
    chosen = os.environ.get("CHECKBACK_TEST_CACHE")
    if chosen:
        folder = Path(chosen)
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "checkback-reconciler"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time: pytest workers, and test runs side by side; freed when the holder dies."""
    with (cache_folder() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def broker_jars(version: str) -> Path:
    """Folder with the class path of name server, broker and client of a version."""
    return _jars(f"broker-{version}", "brokers", version)


def client_jars(version: str) -> Path:
    """Folder with the class path of the stock Java client of a version."""
    return _jars(f"client-{version}", "clients", version)


def grpc_jars(version: str) -> Path:
    """Folder with the class path of the gRPC client for Java."""
    return _jars(f"grpc-{version}", "grpcs", version)


def jdbc_jars() -> Path:
    """Folder with SQLite's driver for Java."""
    return _jars("jdbc-3.50.3.0", "drivers", "3.50.3.0")


def s3proxy_jars() -> Path:
    """Folder with the class path of an S3 server."""
    return _jars("s3proxy-2.6.0", "s3proxys", "2.6.0")


def lake_jars() -> Path:
    """Folder with what Spark 4.1 needs for Iceberg and Delta tables."""
    return _jars(LAKE, "lakes", "4.1")


def _jars(pom_name: str, kind: str, version: str) -> Path:
    pom = POMS / pom_name / "pom.xml"
    # The pom is part of the name: an edited one is never served from an old download.
    stamp = hashlib.sha256(pom.read_bytes() + PLUGIN.encode()).hexdigest()[:12]
    folder = cache_folder() / kind / f"{version}-{stamp}"
    if folder.exists():
        return folder
    # One lock for all: Maven's own repository is not made for two writers.
    with locked("maven"):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            _download(pom, folder)
    return folder


def _download(pom: Path, folder: Path) -> None:
    output = ""
    for attempt in range(1, ATTEMPTS + 1):
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
        command = ["mvn", "-q", "-B", "-f", str(pom), PLUGIN, f"-DoutputDirectory={partial}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DOWNLOAD_SECONDS)
            if done.returncode == 0 and any(partial.glob("*.jar")):
                partial.chmod(0o755)
                partial.rename(folder)  # complete from the first moment it can be seen
                return
            output = done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            output = f"no end within {error.timeout} s"
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        time.sleep(2.0 * attempt)
    raise DownloadFailed(f"{' '.join(command)}\n" + "\n".join(output.splitlines()[-30:]))


def main() -> None:
    """What .ci/run takes, for a machine that will need it soon; what fails is tried again by the tests."""
    for pom in sorted(folder for folder in POMS.iterdir() if folder.name != LAKE):
        kind, _, version = pom.name.partition("-")
        with contextlib.suppress(DownloadFailed):
            _jars(pom.name, f"{kind}s", version)


if __name__ == "__main__":
    main()
