"""Decides when people are told that the ledger is away. Pure.

While the ledger is away, no row of a conversation can be written. So the process remembers the absence in its memory.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from reconciler.contract.facts import Fact
from reconciler.contract.tables import NoticeKind
from reconciler.telling.ports.notices import Notice

#: Only a longer absence of the ledger is reported, because upgrades and fail-overs take less time.
SILENT_MS = 120_000
#: An absence that lasts is reported again after this time. If several processes run, each process reports the absence.
AGAIN_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSilence:
    """One process' knowledge of the ledger's absence, with the reports of one notifier. Times are by the process'
    clock."""

    #: The time since when the ledger is away. None: the ledger answers.
    since_ms: int | None = None
    why: str | Fact = ""
    #: Number of times that this absence was reported to the receiver.
    told_count: int = 0
    #: The time at which this absence or an earlier absence was last reported to the receiver.
    told_at_ms: int | None = None
    #: Begin and end of the last absence that has ended.
    last: tuple[int, int] | None = None
    #: True if the receiver knows of an absence, but not of its end.
    owes_end: bool = False

    def after_look(self, problem: str | Fact | None, *, asked_at_ms: int, now_ms: int) -> LedgerSilence:
        """Returns the state after a question to the ledger at `asked_at_ms`. `problem`: why the ledger did not answer;
        None if it answered."""
        if problem is not None:  # min() is needed because the clock may have been set back
            since_ms = min(asked_at_ms if self.since_ms is None else self.since_ms, now_ms)
            told_at_ms = None if self.told_at_ms is None else min(self.told_at_ms, now_ms)
            return replace(self, since_ms=since_ms, told_at_ms=told_at_ms, why=problem)
        if self.since_ms is None:
            return self
        return replace(
            self,
            since_ms=None,
            told_count=0,
            last=(self.since_ms, now_ms),
            owes_end=self.owes_end or self.told_count > 0,
        )

    def due(self, environment: str, *, interval_ms: int, now_ms: int) -> Notice | None:
        """Returns the notice that is due now, or None. `interval_ms`: least time between two reported absences."""
        if self.since_ms is None:
            over = self.last if self.owes_end else None
            return None if over is None else _notice(environment, over[0], over[1], "", 0, now_ms)
        if now_ms - self.since_ms < SILENT_MS:
            return None
        wait_ms = AGAIN_MS if self.told_count else interval_ms
        if self.told_at_ms is not None and now_ms - self.told_at_ms < wait_ms:
            return None
        return _notice(environment, self.since_ms, None, self.why, self.told_count, now_ms)

    def once_told(self, notice: Notice, *, now_ms: int) -> LedgerSilence:
        """Returns the state after a notice was sent. Meanwhile the ledger may have come back, or gone away again."""
        if notice.is_over:
            return self if self.last is None or self.last[0] != notice.since_ms else replace(self, owes_end=False)
        is_this = self.since_ms is not None and self.since_ms <= notice.since_ms
        told_count = self.told_count + 1 if is_this else self.told_count
        return replace(self, told_count=told_count, told_at_ms=now_ms, owes_end=self.owes_end or not is_this)


def _notice(
    environment: str, since_ms: int, until_ms: int | None, why: str | Fact, told_count: int, now_ms: int
) -> Notice:
    # All tries have the same id. Processes usually notice an absence within seconds of each other, and make the same
    # id.
    of = f"{environment} {NoticeKind.LEDGER_AWAY} {since_ms // SILENT_MS} {told_count} {until_ms is not None}"
    return Notice(
        notice_id=hashlib.sha256(of.encode()).hexdigest()[:26].upper(),
        environment=environment,
        kind=NoticeKind.LEDGER_AWAY,
        topic=None,
        group=None,
        is_over=until_ms is not None,
        count=0,
        since_ms=since_ms,
        until_ms=until_ms,
        detail=why if isinstance(why, str) else "",
        cause=why if isinstance(why, Fact) else None,
        written_at_ms=now_ms,
    )
