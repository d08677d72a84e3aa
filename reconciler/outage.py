"""What happens when Redis goes away or loses its memory: the original design's procedure, by itself.

1. An open row in reconciler_outage notes the start: announcements suspend, rounds pause, the business goes on.
2. Redis is back; a shard without an epoch marker has lost its memory and gets a new one.
3. Inbox rows applied since the start - 60 s are scanned into the commit sets.
4. The row is marked as scanned: announcements resume, rewinding where their offset was lost.
5. The next round (reconcile_round.py) runs and closes the row.

A crash in the middle starts again at 3. Correctness never rests on the scan: verification asks the inbox by key; the
scan saves that work for everything consumed while Redis was away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation, RedisAway, UsageError
from reconciler.events import EventSink, OutageScanned
from reconciler.plan import SubscriptionPlan, TopicPlan
from reconciler.ports import CommitSets, InboxEvidence, Outage, Outages, ShardMemory

#: Rows this much older than the start are scanned too: their SADD may have been on its way.
OVERLAP_MS = 60_000
PAGE_ROWS = 1_000

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageReport:
    """How far the procedure is."""

    outage: Outage
    #: False: Redis is still away, or the inbox scan has not ended.
    is_scanned: bool
    scanned: int
    detail: str


@dataclass(slots=True)
class _Scan:
    """Progress of one scan over all subscriptions."""

    since_ms: int
    progress: Progress | None
    scanned: int = 0
    by_subscription: dict[str, int] = field(default_factory=dict)
    after: dict[str, tuple[int, str]] = field(default_factory=dict)


class OutageRecovery:
    """Steps 2 to 4. Confined to one thread; two processes at once only do the work twice."""

    def __init__(
        self,
        topics: Sequence[TopicPlan],
        *,
        memory: ShardMemory,
        commit_sets: CommitSets,
        inbox: InboxEvidence,
        outages: Outages,
        events: EventSink,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        self._topics = topics
        self._memory = memory
        self._commit_sets = commit_sets
        self._inbox = inbox
        self._outages = outages
        self._events = events
        self._page_rows = page_rows

    def run(self, environment: str, *, progress: Progress | None = None) -> OutageReport | None:
        """Goes on with the open outage; None: none is open. Raises DatabaseAway: try again later."""
        outage = self._outages.current(environment)
        if outage is None:
            return None
        if outage.is_scanned:
            return OutageReport(
                outage=outage, is_scanned=True, scanned=outage.scanned, detail="the next round closes the outage"
            )
        try:
            scan = self._recover(environment, outage, progress)
        except RedisAway as error:
            return OutageReport(outage=outage, is_scanned=False, scanned=0, detail=f"Redis is still away: {error}")
        self._events.emit(
            OutageScanned(
                environment=environment,
                started_at_ms=outage.started_at_ms,
                since_ms=scan.since_ms,
                scanned=scan.scanned,
                by_subscription=scan.by_subscription,
            )
        )
        return OutageReport(outage=outage, is_scanned=True, scanned=scan.scanned, detail="announcements resume")

    def rebuild(self, environment: str, *, since_ms: int | None = None, progress: Progress | None = None) -> int:
        """By hand: scans inbox rows applied since a time, or goes on with the open outage. Returns rows scanned.

        Raises UsageError without a time and without an open outage, RedisAway and DatabaseAway.
        """
        outage = self._outages.current(environment)
        if since_ms is None:
            if outage is None:
                raise UsageError("no outage is open: say since when the inboxes are to be scanned (--since)")
            return self._recover(environment, outage, progress).scanned
        scan = _Scan(since_ms=since_ms, progress=progress)
        for topic in self._of(environment):
            self._scan_topic(topic, scan, outage=None)
        return scan.scanned

    def _of(self, environment: str) -> list[TopicPlan]:
        return [topic for topic in self._topics if topic.environment == environment]

    def _recover(self, environment: str, outage: Outage, progress: Progress | None) -> _Scan:
        for topic in self._of(environment):
            for plan in topic.subscriptions:
                for shard in topic.shards_of(plan.subscription):
                    self._begin(shard)
        scan = _Scan(since_ms=outage.started_at_ms - OVERLAP_MS, progress=progress)
        # Twice: the second turn is short and takes what was applied while other subscriptions were scanned.
        for _ in range(2):
            for topic in self._of(environment):
                self._scan_topic(topic, scan, outage=outage)
        self._outages.advance(
            outage,
            scan_position={"complete": True, "since_ms": scan.since_ms, "rows": scan.by_subscription},
            scanned=scan.scanned,
        )
        return scan

    def _begin(self, shard: Shard) -> None:
        try:
            if self._memory.state(shard).epoch is None:
                self._memory.begin_epoch(shard)
        except InvariantViolation:
            # Its round stops and tells; the other shards must not wait for it.
            return

    def _scan_topic(self, topic: TopicPlan, scan: _Scan, *, outage: Outage | None) -> None:
        for plan in topic.subscriptions:
            if self._inbox.is_configured(plan.subscription):
                self._scan_inbox(topic, plan, scan, outage)

    def _scan_inbox(self, topic: TopicPlan, plan: SubscriptionPlan, scan: _Scan, outage: Outage | None) -> None:
        name = str(plan.subscription)
        while True:
            rows = self._inbox.applied_since(
                plan.subscription, since_ms=scan.since_ms, after=scan.after.get(name), limit=self._page_rows
            )
            if rows:
                self._commit_sets.record(plan.subscription, [row.unique_key for row in rows], shards=topic.shards)
                scan.after[name] = (rows[-1].applied_at_ms, rows[-1].unique_key)
                scan.scanned += len(rows)
                scan.by_subscription[name] = scan.by_subscription.get(name, 0) + len(rows)
                self._tell(scan, outage)
            if len(rows) < self._page_rows:
                return

    def _tell(self, scan: _Scan, outage: Outage | None) -> None:
        if outage is not None:
            position = {"since_ms": scan.since_ms, "rows": dict(scan.by_subscription)}
            self._outages.advance(outage, scan_position=position, scanned=scan.scanned)
        if scan.progress is not None:
            scan.progress(scan.scanned)
