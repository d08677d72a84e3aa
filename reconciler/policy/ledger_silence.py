"""A ledger that is away for long, told from memory: no row can be written, and nothing else would tell it. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from reconciler.contract.tables import NoticeKind
from reconciler.policy.ports import Notice

#: A ledger that is away for less is not told: an upgrade, a fail-over.
SILENT_MS = 120_000
#: Told again after this. Of several processes each tells it, with one id an hour.
AGAIN_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSilence:
    """What one process knows of the ledger, and what it told one notifier. Times are the process' own."""

    #: None: the ledger answers.
    since_ms: int | None = None
    why: str = ""
    #: When the receiver was told that it is away; None: it does not know.
    told_at_ms: int | None = None
    #: Begin and end of an absence that was told, and whose end was not.
    ended: tuple[int, int] | None = None

    def after_look(self, problem: str | None, *, now_ms: int) -> LedgerSilence:
        """`problem`: why the ledger is away; None: it answered."""
        if problem is not None:  # min: the clock may have been set back
            since_ms = now_ms if self.since_ms is None else min(self.since_ms, now_ms)
            told_at_ms = None if self.told_at_ms is None else min(self.told_at_ms, now_ms)
            return replace(self, since_ms=since_ms, told_at_ms=told_at_ms, why=problem)
        if self.since_ms is None:
            return self
        return LedgerSilence(ended=self.ended if self.told_at_ms is None else (self.since_ms, now_ms))

    def due(self, environment: str, *, now_ms: int) -> Notice | None:
        """What is to be told now."""
        if self.since_ms is None and self.ended is not None:
            return _notice(environment, self.ended[0], self.ended[1], "", now_ms)
        if self.since_ms is None or now_ms - self.since_ms < SILENT_MS:
            return None
        if self.told_at_ms is not None and now_ms - self.told_at_ms < AGAIN_MS:
            return None
        return _notice(environment, self.since_ms, None, self.why, now_ms)

    def once_told(self, notice: Notice, *, now_ms: int) -> LedgerSilence:
        """After it was sent."""
        if not notice.is_over:
            return replace(self, told_at_ms=now_ms)
        return self if self.ended is None or self.ended[0] != notice.since_ms else replace(self, ended=None)


def _notice(environment: str, since_ms: int, until_ms: int | None, why: str, now_ms: int) -> Notice:
    of = f"{environment} {NoticeKind.LEDGER_AWAY} {now_ms // AGAIN_MS} {until_ms is not None}"
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
        detail=why,
        written_at_ms=now_ms,
    )
