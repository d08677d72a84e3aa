"""Disks of the chaos runs: nothing of a run that was killed stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.disk import SmallDisk

_OWNER = """
import signal, sys
from pathlib import Path
from tests.chaos.disk import SmallDisk
disk = SmallDisk(Path(sys.argv[1]))
print("mounted" if disk.is_mounted else "not allowed", flush=True)
signal.pause()
"""


def _mounts() -> str:
    return Path("/proc/mounts").read_text(encoding="utf-8")


def test_the_disk_of_a_killed_run_is_neither_in_its_folder_nor_mounted_for_ever(tmp_path: Path) -> None:
    place = tmp_path / "broker-1" / "store"
    with subprocess.Popen([sys.executable, "-c", _OWNER, str(place)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        said = owner.stdout.readline().strip()
        owner.send_signal(signal.SIGKILL)
    if said == "not allowed":
        pytest.skip("needs the right to mount")
    abandoned = os.readlink(place)
    assert abandoned in _mounts()
    assert str(tmp_path) not in _mounts()

    other = SmallDisk(tmp_path / "broker-2" / "store")
    try:
        assert abandoned not in _mounts()
        assert not Path(abandoned).exists()
    finally:
        other.close()
    assert not os.path.exists(os.readlink(tmp_path / "broker-2" / "store"))


def test_a_disk_is_full_and_has_room_again(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "store")
    if not disk.is_mounted:
        pytest.skip("needs the right to mount")
    try:
        disk.fill()
        state = os.statvfs(tmp_path / "store")
        assert 0.9 < 1 - state.f_bfree / state.f_blocks < 1
        disk.free()
        state = os.statvfs(tmp_path / "store")
        assert state.f_bfree * state.f_frsize > 3 * 1024**3
    finally:
        disk.close()
