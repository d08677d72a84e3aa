"""A history's writer as a process that ends itself by SIGKILL, at one step of its work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from reconciler.clock import ManualClock
from reconciler.history.chain import ManifestChain
from reconciler.history.compaction import Compactor
from reconciler.history.segment import SegmentWriter
from reconciler.history.spool import Spool, WriterFolder
from reconciler.history.store import HistoryStore
from tests.unit.history.house import START_MS, House

CLASSES = {c.__name__: c for c in (ManifestChain, Compactor, SegmentWriter, Spool, WriterFolder, HistoryStore)}
#: Rounds between two seals, and seals between two compactions.
ROUNDS_A_SEAL, SEALS_A_COMPACTION = 2, 3


def die_at(where: str, nth: int) -> None:
    """Replaces one method by one that ends the process at its nth call: "Class.method before", or "... after"."""
    named, when = where.split(" ")
    owner, method = named.split(".")
    real: Callable[..., Any] = getattr(CLASSES[owner], method)
    calls = 0

    def deadly(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*arguments, **more)
        if calls == nth and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(CLASSES[owner], method, deadly)


def key_of_round(writer: str, number: int) -> bytes:
    """All of them of one writer, each of its own."""
    return f"{writer}/{number:08d}".encode().rjust(16, b"\x00")


def write_rounds(folder: Path, writer: str, where: str, nth: int, rounds: int, durable: Connection) -> None:
    """Rounds with seals and compactions; the number of each round that is durable is sent before anything else."""
    if where:
        die_at(where, nth)
    house = House(folder, writer=writer, shards=1, clock=ManualClock(START_MS))
    house.maintenance._rules = type(house.maintenance._rules)(seal_seconds=1, compact_files=2, keep_days=30)
    for number in range(1, rounds + 1):
        house.round(0, announced=[key_of_round(writer, number)])
        house.recorder.run_pass()
        assert house.recorder.spool_health.problem is None
        durable.send(number)
        if number % ROUNDS_A_SEAL == 0:
            house.recorder.rotate()
            house.maintenance.seal_all(house.recorder.spool)
        if number % (ROUNDS_A_SEAL * SEALS_A_COMPACTION) == 0:
            house.maintenance.compact()
