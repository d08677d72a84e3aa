"""Processor time and memory of processes with their children, read in /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of one process and every descendant; ended children count with their processor time."""

    cpu_seconds: float
    resident_mib: float


def _fields(pid: int) -> list[str]:
    """What follows the name in /proc/<pid>/stat; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except (OSError, IndexError):
        return []


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _fields(int(entry))):
            found.setdefault(int(fields[1]), []).append(int(entry))
    return found


def own_children() -> set[int]:
    """Processes that this one started and that live."""
    return set(_children().get(os.getpid(), ()))


def command_of(pid: int) -> str:
    """Its command line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def usage(pid: int, children: Mapping[int, list[int]] | None = None) -> Usage:
    """Zeroes for a process that is gone."""
    known = _children() if children is None else children
    cpu, resident, todo = 0.0, 0.0, [pid]
    while todo:
        one = todo.pop()
        todo += known.get(one, [])
        fields = _fields(one)
        if fields:
            cpu += sum(int(ticks) for ticks in fields[11:15]) / _TICKS
            resident += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / _MIB
    return Usage(cpu_seconds=cpu, resident_mib=resident)


@dataclass(slots=True)
class Meter:
    """Cores that named processes used between `start` and `stop`, and their largest memory at any `look`."""

    pids: Mapping[str, int]
    _before: dict[str, float] = field(default_factory=dict)
    resident_mib: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """The span begins."""
        self._before = {name: one.cpu_seconds for name, one in self.look().items()}

    def look(self) -> dict[str, Usage]:
        """Notes the memory of now."""
        children = _children()
        now = {name: usage(pid, children) for name, pid in self.pids.items()}
        for name, one in now.items():
            self.resident_mib[name] = round(max(one.resident_mib, self.resident_mib.get(name, 0.0)), 1)
        return now

    def cores(self, seconds: float) -> dict[str, float]:
        """Processor seconds a second since `start`, by process."""
        now = self.look()
        return {name: round((now[name].cpu_seconds - self._before.get(name, 0.0)) / seconds, 3) for name in now}
