"""Limits the memory in which files are read, because a few hundred bytes of a file can unpack to terabytes.

Sizes that a file states are no limit, because the file may lie.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reconciler.audit.errors import AuditError

#: Largest memory that one piece of a window, or one output of an audit, may add to a process. A piece takes about 1 GB.
PIECE_BYTES_MAX = 4 * 1024**3
#: Share of the machine's memory that reading may add to a process.
MACHINE_SHARE = 0.75
_STATUS = Path("/proc/self/status")
#: Limits of a container, of cgroup 2 and of cgroup 1.
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@contextmanager
def bounded_memory(what: str, *, bytes_max: int | None = PIECE_BYTES_MAX) -> Iterator[None]:
    """Limits the memory that the block adds to this process, so that the machine does not run out of memory.

    `what` says in the message what was read. `bytes_max` None: only the machine limits it. Raises AuditError("inputs")
    at the limit. Systems other than Linux ignore the limit.
    """
    of_machine = int(machine_bytes() * MACHINE_SHARE)
    bytes_max = of_machine if bytes_max is None else min(bytes_max, of_machine)
    limit = _used_bytes() + bytes_max
    _begin(limit)
    try:
        yield
    except MemoryError as error:
        message = f"{what} takes more than {bytes_max // 1024**2:,} MiB of memory to look at"
        raise AuditError("inputs", f"{message}: nothing that an audit writes does") from error
    finally:
        _end(limit)


#: The limits of the blocks that run. The process has one limit, and its threads judge several windows at once.
_limits: list[int] = []
_before: list[tuple[int, int]] = []
_lock = threading.Lock()


def _begin(limit: int) -> None:
    with _lock:
        if not _limits:
            _before[:] = [resource.getrlimit(resource.RLIMIT_DATA)]
        _limits.append(limit)
        _apply()


def _end(limit: int) -> None:
    with _lock:
        _limits.remove(limit)
        _apply()


def _apply() -> None:
    """Sets the lowest limit of the blocks that run. Without a block, sets the limit from before the first one."""
    before, hard = _before[0]
    lower = [one for one in (before, hard, *_limits) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(lower) if _limits else before, hard))


def machine_bytes() -> int:
    """Reads the memory of this machine, or of the container in which this process runs."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _CONTAINER:
        with suppress(OSError, ValueError):  # "max": no limit
            found.append(int(file.read_text()))
    return min(found)


def _used_bytes() -> int:
    """Reads how much of the limit this process uses. 0: the system does not say."""
    if not _STATUS.exists():
        return 0
    found = [line.split()[1] for line in _STATUS.read_text().splitlines() if line.startswith("VmData:")]
    return int(found[0]) * 1024 if found else 0
