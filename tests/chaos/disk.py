"""A broker's disk that can be filled at once: a tmpfs that shrinks until it is nearly full."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

#: Room while it is not full; pages that are not written cost nothing.
SIZE_BYTES = 4 * 1024**3
#: So much is always used, so that the little room of a full disk is enough for what a broker goes on writing:
#: mapped files end a process that has no page left.
BALLAST_BYTES = 128 * 1024**2
#: Above the brokers' warning level, 0.90.
FULL_RATIO = 0.93

_PREFIX = "reconciler-disk"


class SmallDisk:
    """Mounted until `close`. Needs the right to mount; without it `folder` is an ordinary one.

    The disk is mounted in a folder of its own that `folder` points to. Mounted in `folder` itself, the disk of a run
    that was killed would be busy when pytest removes that run's folders, and would fail a later run.
    """

    def __init__(self, folder: Path) -> None:
        _unmount_abandoned()
        self._place = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{os.getpid()}-"))
        self.is_mounted = _mount("-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "chaos", str(self._place))
        if self.is_mounted:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.symlink_to(self._place)
            (folder / "ballast").write_bytes(bytes(BALLAST_BYTES))
        else:
            self._place.rmdir()
            folder.mkdir(parents=True, exist_ok=True)

    def fill(self) -> None:
        """A few megabytes are left."""
        state = os.statvfs(self._place)
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        self._resize(round(used / FULL_RATIO))

    def free(self) -> None:
        """All the room again."""
        self._resize(SIZE_BYTES)

    def close(self) -> None:
        """Unmounts, also under a process that is about to end."""
        if self.is_mounted:
            _unmount(self._place)

    def _resize(self, size_bytes: int) -> None:
        if self.is_mounted:
            _mount("-o", f"remount,size={size_bytes}", str(self._place))


def _unmount_abandoned() -> None:
    """Disks of processes that were killed: nothing else would give their memory back."""
    for place in re.findall(rf"\S*/{_PREFIX}-\d+-\S+", Path("/proc/mounts").read_text(encoding="utf-8")):
        owner = int(Path(place).name.removeprefix(f"{_PREFIX}-").split("-")[0])
        if not Path(f"/proc/{owner}").exists():
            _unmount(Path(place))


def _unmount(place: Path) -> None:
    done = subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
    if done.returncode == 0:
        place.rmdir()


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode == 0
    except OSError:
        return False
