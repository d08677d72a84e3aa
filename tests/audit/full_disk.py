"""File systems that are really full: a command runs in a mount namespace of its own, with a small tmpfs at a folder.

Nothing of it is seen outside, and all of it is gone when the command has ended; what lay there then is listed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.audit.audit_process import SECONDS
from tests.ended import Ended
from tests.services.requirements import require

PAGE = 4096
_SCRIPT = """
set -u
place=$1 options=$2 about=$3
shift 3
mount -t tmpfs -o "$options" tmpfs "$place" || exit 99
"$@"
code=$?
cd "$place" && find . -mindepth 1 \\( -type d -printf '%P 0\\n' -o -printf '%P %s\\n' \\) > "$about"
exit $code
"""


@functools.cache
def may_mount() -> bool:
    """Whether this kernel lets a user mount in a namespace of its own."""
    done = subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return done.returncode == 0


def require_small_disks() -> None:
    """Skips, in CI too, where the kernel forbids it: unlike a package, that is nothing a run could install."""
    require(None if shutil.which("unshare") else "unshare is missing: apt-get install util-linux (Linux only)")
    if not may_mount():
        pytest.skip("user namespaces are not allowed: sysctl kernel.unprivileged_userns_clone=1 (or run as root)")


@dataclass(frozen=True, kw_only=True)
class EndedOnFullDisk(Ended):
    """What a process left, also on the file system that has gone."""

    #: Path and size of everything that lay there; folders have 0.
    there: dict[str, int]

    @property
    def pages(self) -> int:
        """4 KiB pages that its files take."""
        return sum(-(-size // PAGE) for size in self.there.values())


def run_on_small_disk(
    command: Sequence[str | Path], place: Path, *, pages: int, inodes: int = 1_000_000
) -> EndedOnFullDisk:
    """Runs a command while a file system of `pages` of 4 KiB lies at `place`, an existing folder."""
    about = place.parent / f"{place.name}-listing.txt"
    about.unlink(missing_ok=True)
    options = f"size={pages * PAGE},nr_inodes={inodes}"
    done = subprocess.run(
        ["unshare", "-Urm", "bash", "-c", _SCRIPT, "small", str(place), options, str(about), *map(str, command)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    rows = [line.rpartition(" ") for line in about.read_text().splitlines()]
    found = {path: int(size) for path, _, size in rows}
    return EndedOnFullDisk(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr, there=found)
