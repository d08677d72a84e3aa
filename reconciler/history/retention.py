"""Retires days that are too old, and deletes files that no entry lists any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from reconciler.contract.history_row import ROUND
from reconciler.history.chain import ManifestChain
from reconciler.history.store import TEMPORARY, HistoryStore
from reconciler.history.tables import DAY_MS, date_of

#: Time that removed files stay on the disk, for readers that began before the removing entry.
READERS_MS = 3_600_000
#: Age of an orphan. A younger file that no entry has named may belong to a writer that is at work.
ORPHAN_MS = DAY_MS
#: Number of newest days with rounds that are compared to find today's date. Two of these days may come from a wrong
#: clock.
DAYS_ASKED = 3
#: Longest believable time without rounds. After a longer time the clock counts as wrong, and nothing is deleted until
#: rounds run.
IDLE_MS_MAX = 60 * DAY_MS


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """Numbers of files that were deleted."""

    removed: int
    orphans: int


class Retention:
    """Retires days and deletes files. Confined to one thread.

    Other processes may do the same work on the same history.
    """

    def __init__(self, store: HistoryStore, chain: ManifestChain, *, keep_days: int | None) -> None:
        self._store = store
        self._chain = chain
        self._keep_days = keep_days

    def retire(self, *, now_ms: int) -> int:
        """Removes all days that are too old by one entry. Returns the number of removed files. Raises OSError.

        The history's own days limit the age, too, so that a host whose clock starts in 2040 removes no day.
        """
        if self._keep_days is None:
            return 0
        kept_from = date_of(min(now_ms, self._latest_ms() or now_ms) - self._keep_days * DAY_MS)
        old = [file.path for file in self._chain.files().values() if file.date < kept_from]
        if not old:
            return 0

        def still() -> bool:
            files = self._chain.files()
            return all(path in files for path in old)

        return len(old) if self._chain.append("retire", removed=old, kept_from=kept_from, still=still) else 0

    def _latest_ms(self) -> int | None:
        """Finds the latest time that rounds make credible. The times of rounds come from Redis.

        None: there are no rounds.
        """
        days = sorted({f.date for f in self._chain.files().values() if f.stream == ROUND.name}, reverse=True)
        if not days:
            return None
        place = min(DAYS_ASKED, len(days))
        day = datetime.fromisoformat(days[place - 1]).replace(tzinfo=UTC)
        return round(day.timestamp() * 1000) + place * DAY_MS

    def clean(self, *, now_ms: int) -> DeletedFiles:
        """Deletes removed files and orphans whose time on the disk is over. Raises OSError."""
        latest_ms = self._latest_ms()
        if latest_ms is not None and now_ms > latest_ms + IDLE_MS_MAX:
            return DeletedFiles(removed=0, orphans=0)  # files that another writer just writes would look years old
        found = list(self._store.walk())
        self._chain.refresh()  # after the walk, so that a file that was added during the walk counts as listed
        files, removed = self._chain.files(), self._chain.removed()
        gone = orphans = 0
        for path, changed_seconds in found:
            if path in files:
                continue
            age_ms = now_ms - changed_seconds * 1000
            if path in removed:
                is_over = now_ms - removed[path] >= READERS_MS
                gone += is_over
            else:
                is_over = age_ms >= (READERS_MS if f"/{TEMPORARY}" in path else ORPHAN_MS)
                orphans += is_over
            if is_over:
                self._store.delete(path)
        there = {path for path, _ in found}
        for path in removed.keys() - there:
            self._chain.forget_removed(path)
        return DeletedFiles(removed=gone, orphans=orphans)
