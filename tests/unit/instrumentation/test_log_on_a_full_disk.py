"""The log of a process that goes on after its disk was full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.instrumentation.console import ForgivingFile


def test_a_disk_that_was_full_costs_the_lines_of_that_time_alone(tmp_path: Path) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    log, once = ForgivingFile(descriptor, tries_again=True), ForgivingFile(descriptor)
    for file in (log, once):
        assert file.write(b"lost\n") == 5
        assert file.error is not None
    room = os.open(tmp_path / "run.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(room, descriptor)
    log.write(b"kept\n")
    once.write(b"an answer with a hole\n")
    assert (tmp_path / "run.log").read_bytes() == b"kept\n"
    for one in (room, descriptor):
        os.close(one)


def full_after(room: int, real: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    """`write` of a disk with room for so many bytes."""
    left = [room]

    def write(descriptor: int, data: bytes) -> int:
        part = data[: left[0]]
        if not part:
            left[0] = 1_000  # somebody made room
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= len(part)
        return real(descriptor, part)

    return write


def test_a_line_that_was_cut_ends_before_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(tmp_path / "run.log", os.O_WRONLY | os.O_CREAT)
    log = ForgivingFile(descriptor, tries_again=True)
    monkeypatch.setattr(os, "write", full_after(9, os.write))
    for line in (b"first\n", b"second\n", b"third\n", b"fourth\n"):
        assert log.write(line) == len(line)
    monkeypatch.undo()
    assert (tmp_path / "run.log").read_bytes() == b"first\nsec\nthird\nfourth\n"
    os.close(descriptor)


def test_a_line_end_that_alone_found_room_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(tmp_path / "run.log", os.O_WRONLY | os.O_CREAT)
    log = ForgivingFile(descriptor, tries_again=True)
    for room, line in ((3, b"first\n"), (1, b"second\n"), (6, b"third\nfourth\n"), (100, b"fifth\n")):
        monkeypatch.setattr(os, "write", full_after(room, os.write))
        log.write(line)
        monkeypatch.undo()
    assert (tmp_path / "run.log").read_bytes() == b"fir\nthird\nfifth\n"
    os.close(descriptor)
