"""A broker's disk that can be filled at once: a tmpfs that shrinks until it is nearly full."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

#: Room while it is not full; pages that are not written cost nothing.
SIZE_BYTES = 4 * 1024**3
#: So much is always used, so that the little room of a full disk is enough for what a broker goes on writing:
#: mapped files end a process that has no page left.
BALLAST_BYTES = 128 * 1024**2
#: Above the brokers' warning level, 0.90.
FULL_RATIO = 0.93


class SmallDisk:
    """Mounted until `close`. Needs the right to mount."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.is_mounted = _mount("-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "chaos", str(folder))
        if self.is_mounted:
            (folder / "ballast").write_bytes(bytes(BALLAST_BYTES))

    def fill(self) -> None:
        """A few megabytes are left."""
        state = os.statvfs(self._folder)
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        self._resize(round(used / FULL_RATIO))

    def free(self) -> None:
        """All the room again."""
        self._resize(SIZE_BYTES)

    def close(self) -> None:
        """Unmounts, also under a process that is about to end."""
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self._folder)], check=False, capture_output=True)

    def _resize(self, size_bytes: int) -> None:
        if self.is_mounted:
            _mount("-o", f"remount,size={size_bytes}", str(self._folder))


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode == 0
    except OSError:
        return False
