"""Health of the history's parts. A change of health is logged once. Counters count every event."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, fields

from reconciler.clock import Clock

logger = logging.getLogger(__name__)


class Health:
    """Health of one part: `spool`, `history` or `capture`. Threads may share the object."""

    def __init__(self, part: str, *, clock: Clock) -> None:
        self._part = part
        self._clock = clock
        self._lock = threading.Lock()
        #: Current problem. None: the part works.
        self.problem: str | None = None
        self.failing_since_ms: int | None = None

    def failed(self, error: BaseException) -> None:
        """Records that the part fails. Logs the problem if the part worked before."""
        with self._lock:
            was_well, self.problem = self.problem is None, str(error)
            if was_well:
                self.failing_since_ms = self._clock.now_ms()
        if was_well:
            logger.error("history_failing", extra={"part": self._part, "error": str(error)})

    def worked(self) -> None:
        """Records that the part works. Logs this if the part failed before."""
        with self._lock:
            was_ill, since_ms = self.problem is not None, self.failing_since_ms
            self.problem = self.failing_since_ms = None
        if was_ill and since_ms is not None:
            seconds = (self._clock.now_ms() - since_ms) / 1000
            logger.warning("history_works_again", extra={"part": self._part, "failed_for_seconds": seconds})


@dataclass(slots=True)
class Counters:
    """Counts of the history's work since the process began. Only one thread writes a given number."""

    rounds_captured: int = 0
    rounds_missed: int = 0
    rows_spooled: int = 0
    rows_dropped: int = 0
    rows_sealed: int = 0
    files_sealed: int = 0
    files_compacted: int = 0
    files_retired: int = 0
    spool_bytes: int = 0
    #: Redis TIME of the newest round in the spool.
    captured_until_ms: int = 0
    sealed_at_ms: int = 0

    def as_dict(self) -> dict[str, int]:
        """Maps names to numbers, for logs and metrics."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
