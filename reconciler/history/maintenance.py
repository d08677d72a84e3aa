"""Moves rows from the spool into the history.

The work is sealing, adoption of dead writers' segments, compaction and retention. If a later turn may cure a failure,
the failure is logged once, and the work is tried again with growing pauses. Rows wait in the spool.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.clock import Backoff, Clock
from reconciler.errors import TransientError
from reconciler.history.batch import STREAMS
from reconciler.history.chain import ManifestChain
from reconciler.history.chain_head import remember_head
from reconciler.history.compaction import MERGES_AN_ENTRY, Compactor, plan_merges
from reconciler.history.health import Counters, Health
from reconciler.history.retention import Retention
from reconciler.history.sealer import Sealer
from reconciler.history.spool import Spool, WriterFolder, adoptable
from reconciler.history.store import HistoryStore
from reconciler.history.tables import date_of

logger = logging.getLogger(__name__)

BACK_OFF = Backoff(first_seconds=1.0, longest_seconds=60.0)
#: Number of segments that fail to be sealed before the turn ends.
UNSEALED_SEGMENTS_MAX = 2
#: Seconds between two turns that retire days and delete removed files.
RETENTION_SECONDS = 3600.0
#: Time after a day's end at which compaction begins to treat the day as over. Late seals have come by then.
DAY_OVER_MS = 1_800_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRules:
    """Rules for sealing segments, merging files and retiring days."""

    seal_seconds: float
    compact_files: int
    #: None: days are kept for ever.
    keep_days: int | None


class HistoryMaintenance:
    """Maintenance of one history. Confined to one thread."""

    def __init__(
        self,
        store: HistoryStore,
        chain: ManifestChain,
        *,
        rules: MaintenanceRules,
        spool_folder: Path,
        counters: Counters,
        clock: Clock,
        sealer: Sealer | None = None,
    ) -> None:
        self._store = store
        self._chain = chain
        self._rules = rules
        self._spool_folder = spool_folder
        self._counters = counters
        self._clock = clock
        self._sealer = sealer or Sealer(store, chain, clock=clock)
        self._compactor = Compactor(store, chain)
        self._retention = Retention(store, chain, keep_days=rules.keep_days)
        self._adopted: list[WriterFolder] = []
        self._failures = 0
        self._not_before = 0.0
        self._next: dict[str, float] = {}
        self.health = Health("history", clock=clock)

    def adopt(self, folders: Sequence[WriterFolder]) -> None:
        """Takes over folders of dead writers. This process holds the folders' locks already."""
        self._adopted += folders

    def run_turn(self, spool: Spool | None, *, is_last: bool = False) -> None:
        """Seals closed segments, then does the other work that is due.

        With `is_last`, only seals, and does so without a pause.
        """
        if self._clock.monotonic_seconds() < self._not_before and not is_last:
            return
        try:
            self.seal_all(spool)
            if is_last:
                return
            self._when_due("adopt", self._rules.seal_seconds, self._adopt_more)
            self._when_due("compact", self._rules.seal_seconds, self.compact)
            self._when_due("retain", RETENTION_SECONDS, self.retain)
        except (OSError, TransientError) as error:
            self.health.failed(error)
            self._not_before = self._clock.monotonic_seconds() + BACK_OFF.pause_seconds(self._failures)
            self._failures += 1
        else:
            self.health.worked()
            self._failures = 0

    def seal_all(self, spool: Spool | None) -> None:
        """Seals every closed segment of this writer and of adopted folders. Raises the first OSError or ChainContended.

        A segment that cannot be sealed delays no other segment. Two such segments end the turn, because the history may
        be away.
        """
        problems: list[OSError | TransientError] = []
        for folder in list(self._adopted):
            if self._seal_each(folder.segments(), problems, done=Path.unlink):
                folder.leave()
                self._adopted.remove(folder)
        if spool is not None:
            self._seal_each(spool.closed(), problems, done=spool.done)
        if problems:
            raise problems[0]

    def _seal_each(
        self, segments: Sequence[Path], problems: list[OSError | TransientError], *, done: Callable[[Path], object]
    ) -> bool:
        """Seals segments. True: all of them were sealed. Errors are added to `problems`."""
        before = len(problems)
        for segment in segments:
            try:
                self._seal(segment, done=done)
            except (OSError, TransientError) as error:
                problems.append(error)
                if len(problems) >= UNSEALED_SEGMENTS_MAX:
                    raise problems[0] from None
        return len(problems) == before

    def _seal(self, segment: Path, *, done: Callable[[Path], object]) -> None:
        sealed = self._sealer.seal(segment)
        done(segment)
        if self._chain.sequence:
            root, environment = self._store.root, self._store.environment
            remember_head(self._spool_folder, root, environment, sequence=self._chain.sequence)
        counters = self._counters
        counters.rows_sealed += sealed.rows
        counters.files_sealed += sealed.files
        counters.sealed_at_ms = self._clock.now_ms()
        logger.info(
            "history_sealed",
            extra={"segment": sealed.segment, "rows": sealed.rows, "files": sealed.files, **counters.as_dict()},
        )
        if sealed.damaged:
            logger.error("history_spool_damaged", extra={"segment": sealed.segment, "places": sealed.damaged})

    def _adopt_more(self) -> None:
        self.adopt(adoptable(self._spool_folder))
        self.seal_all(None)

    def compact(self) -> None:
        """Carries out all planned merges. Altered files stay as they are. Raises OSError and ChainContended."""
        self._chain.refresh()
        now_ms = self._clock.now_ms()
        found, damaged = self._chain.files().values(), self._compactor.damaged
        # Another release may write streams that this release does not know.
        files = [f for f in found if f.stream in STREAMS and f.path not in damaged]
        merges = list(
            plan_merges(
                files,
                over_before=date_of(now_ms - DAY_OVER_MS),
                hour_began_ms=now_ms // HOUR_MS * HOUR_MS,
                files_max=self._rules.compact_files,
            )
        )
        for start in range(0, len(merges), MERGES_AN_ENTRY):
            self._counters.files_compacted += self._compactor.merge(merges[start : start + MERGES_AN_ENTRY])

    def retain(self) -> None:
        """Retires old days and deletes files that no entry lists. Raises OSError."""
        now_ms = self._clock.now_ms()
        self._chain.refresh()
        self._counters.files_retired += self._retention.retire(now_ms=now_ms)
        self._retention.clean(now_ms=now_ms)

    def _when_due(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        now = self._clock.monotonic_seconds()
        if now >= self._next.get(name, 0.0):
            act()
            self._next[name] = now + seconds
