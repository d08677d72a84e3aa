"""A history's writer as a process that ends itself by SIGKILL: `python -m ... FOLDER WRITER WHERE NTH ROUNDS`.

WHERE is "Class.method before" or "... after", NTH counts its calls. What is durable is told line by line on standard
output before anything else happens.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
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
    """Replaces one method by one that ends the process."""
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


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    folder, writer, where, nth, rounds = sys.argv[1:]
    if where:
        die_at(where, int(nth))
    house = House(Path(folder), writer=writer, shards=1, clock=ManualClock(START_MS))
    house.maintenance._rules = type(house.maintenance._rules)(seal_seconds=1, compact_files=2, keep_days=30)
    for number in range(1, int(rounds) + 1):
        house.round(0, announced=[key_of_round(writer, number)])
        house.recorder.run_pass()
        assert house.recorder.spool_health.problem is None
        tell(f"durable {number}")
        if number % ROUNDS_A_SEAL == 0:
            house.recorder.rotate()
            house.maintenance.seal_all(house.recorder.spool)
            tell("sealed")
        if number % (ROUNDS_A_SEAL * SEALS_A_COMPACTION) == 0:
            house.maintenance.compact()
            tell("compacted")


if __name__ == "__main__":
    main()
