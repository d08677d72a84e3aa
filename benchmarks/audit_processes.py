"""What a tree of processes uses, from /proc: resident memory now, processor time since it began."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
INTERVAL_SECONDS = 0.05


def _fields(pid: str) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the third on; None once it has gone."""
    try:
        return Path("/proc", pid, "stat").read_text().rsplit(") ", 1)[1].split()
    except (OSError, IndexError):
        return None


def tree(root: int) -> list[list[str]]:
    """The fields of a process and of all its descendants."""
    found = {int(pid): fields for pid in os.listdir("/proc") if pid.isdigit() and (fields := _fields(pid))}
    children: dict[int, list[int]] = defaultdict(list)
    for pid, fields in found.items():
        children[int(fields[1])].append(pid)
    members, open_pids = [], [root]
    while open_pids:
        pid = open_pids.pop()
        if pid in found:
            members.append(found[pid])
        open_pids += children.get(pid, [])
    return members


def resident_bytes(members: list[list[str]]) -> int:
    """Sum of resident memory; what processes share counts for each of them."""
    return sum(int(fields[21]) for fields in members) * _PAGE


def cpu_seconds(members: list[list[str]]) -> float:
    """User and system time of all, children that have ended included."""
    return sum(sum(int(value) for value in fields[11:15]) for fields in members) / _TICK


class Peak:
    """The largest resident memory and processor time that were seen."""

    def __init__(self) -> None:
        self.bytes = 0
        self.cpu_seconds = 0.0


@contextmanager
def watched(root: int) -> Iterator[Peak]:
    """Looks every 50 ms from a thread."""
    peak, stop = Peak(), threading.Event()

    def look() -> None:
        while True:
            members = tree(root)
            peak.bytes = max(peak.bytes, resident_bytes(members))
            peak.cpu_seconds = max(peak.cpu_seconds, cpu_seconds(members))
            if stop.wait(INTERVAL_SECONDS):
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()
