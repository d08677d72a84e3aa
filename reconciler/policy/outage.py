"""The procedure after Redis was away or lost its memory: that of the original design, without a person.

1. An open row in reconciler_outage stores the start. Announcements are suspended and rounds pause, while the business
continues. If shards lie on several servers and one server is away, the shards of the other servers have rounds
(ShardRounds.goes_on).
2. Redis is back. A shard without an epoch marker gets a new marker. If the shard had rounds before, Redis has lost its
   memory. Then that becomes the reason of the outage, even if it was opened for another reason.
3. Inbox rows that were applied since the start minus 60 s are scanned into the commit sets, each once. The scan ends at
the newest row that existed when every recorder had noticed that Redis is back. So no failed SADD is left out.
4. The row is marked as scanned. Announcements resume, and are read again if their offset was lost.
5. Every announcement consumer gets the time to resume. Then the next round (round.py) runs and closes the row. An
earlier round would only make the commit sets older.

After a crash the procedure starts again at 3. Correctness never depends on the scan, because the judge asks the inbox
by key. The scan saves that work for all keys that were consumed while Redis was away. So an inbox that cannot be read
is left out after a while, instead of delaying all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.clock import Clock
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import DatabaseAway, InvariantViolation, ReconcilerError, RedisAway, TransientError, UsageError
from reconciler.policy.events import EventSink, OutageScanned
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.announcing import CommitSets
from reconciler.policy.ports.evidence import InboxEvidence
from reconciler.policy.ports.ledger import Outage, Outages
from reconciler.policy.ports.rounds import Rounds, ShardMemory
from reconciler.policy.shard_rounds import since_ms

#: Rows that are this much older than the start are scanned, too, because their SADD may have been under way.
OVERLAP_MS = 60_000
PAGE_ROWS = 1_000
#: Recorders try Redis again after at most a second (checkback_consumers.recorder), plus the time-out of the last try.
RECORDERS_RETURN_SECONDS = 2.0
#: Rows get their time before their commit, so a row below the end of the scan may appear this much later. A row that
#: appears even later is recorded by the consumer's recorder, which reaches Redis again by then.
SETTLE_SECONDS = 1.0
#: Announcement consumers check every second whether the scan has ended, and resume then
#: (reconciler/announcing/step.py).
ANNOUNCEMENTS_RETURN_SECONDS = 3.0
#: The time for which an inbox that is away delays the whole scan after the first try. After that, the scan leaves the
#: inbox out.
INBOX_WAIT_SECONDS = 60.0
#: Maximum number of characters of the reason that are stored in reconciler_outage.
_REASON_CHARACTERS = 300

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageReport:
    """The progress of the procedure."""

    outage: Outage
    #: False if Redis is still away, or if the inbox scan has not ended.
    is_scanned: bool
    scanned: int
    detail: str


@dataclass(slots=True)
class _Scan:
    """The progress of one scan over all subscriptions."""

    since_ms: int
    progress: Progress | None
    scanned: int = 0
    #: Subscription -> number of rows. `until_ms`: subscription -> applied_at_ms of the last row of the scan, by the
    #: inbox's clock.
    by_subscription: dict[str, int] = field(default_factory=dict)
    until_ms: dict[str, int] = field(default_factory=dict)
    #: Subscription -> why some of its rows were left out.
    left_out: dict[str, str] = field(default_factory=dict)
    first_error: ReconcilerError | None = None

    def leave_out(self, subscription: Subscription, error: ReconcilerError) -> None:
        """Stores the reason. The first reason of a subscription stays."""
        self.left_out.setdefault(str(subscription), str(error)[:_REASON_CHARACTERS])
        self.first_error = self.first_error or error

    def position(self) -> dict[str, object]:
        """Returns the value of reconciler_outage.scan_position."""
        position = {"since_ms": self.since_ms, "until_ms": dict(self.until_ms), "rows": dict(self.by_subscription)}
        return {**position, "left_out": dict(self.left_out)} if self.left_out else position


def _is_until(applied_at_ms: object, until_ms: int) -> bool:
    return isinstance(applied_at_ms, int | float) and applied_at_ms <= until_ms


class OutageRecovery:
    """Runs steps 2 to 4. Only one thread uses it. If two processes run these steps at once, they only do the work
    twice."""

    def __init__(
        self,
        topics: Sequence[TopicPlan],
        *,
        memory: ShardMemory,
        commit_sets: CommitSets,
        inbox: InboxEvidence,
        outages: Outages,
        rounds: Rounds,
        clock: Clock,
        events: EventSink,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        self._topics = topics
        self._memory = memory
        self._commit_sets = commit_sets
        self._inbox = inbox
        self._outages = outages
        self._rounds = rounds
        self._clock = clock
        self._events = events
        self._page_rows = page_rows
        #: The outage whose scan waits for an inbox (its start in ms), and since when the scan waits (monotonic
        #: seconds). After a restart the wait begins again. None: no scan waits.
        self._waits: tuple[int, float] | None = None

    def run(self, environment: str, *, progress: Progress | None = None) -> OutageReport | None:
        """Continues the open outage. None: no outage is open. Raises DatabaseAway; then try again later."""
        outage = self._outages.current(environment)
        if outage is None:
            return None
        try:
            if not outage.is_scanned:
                scanned = self._recover(environment, outage, progress).scanned
            else:
                scanned = outage.scanned
                if not outage.rounds_may_run:
                    self._let_rounds_run(outage, outage.scan_position or {}, scanned)
        except RedisAway as error:
            return OutageReport(outage=outage, is_scanned=False, scanned=0, detail=f"Redis is still away: {error}")
        return OutageReport(outage=outage, is_scanned=True, scanned=scanned, detail="the next round closes the outage")

    def rebuild(self, environment: str, *, since_ms: int | None = None, progress: Progress | None = None) -> int:
        """Scans by a person's order: scans inbox rows that were applied since a time, or continues the open outage.
        Returns the number of scanned rows.

        Raises UsageError if there is neither a time nor an open outage. Raises RedisAway and DatabaseAway. If an inbox
        or a shard refuses, its error is raised after all others were scanned.
        """
        outage = self._outages.current(environment)
        if since_ms is None:
            if outage is None:
                raise UsageError("no outage is open: say since when the inboxes are to be scanned (--since)")
            scan = self._recover(environment, outage, progress)
        else:
            scan = _Scan(since_ms=since_ms, progress=progress)
            self._scan(environment, scan, outage=None)
        if scan.first_error is not None:
            raise scan.first_error
        return scan.scanned

    def _of(self, environment: str) -> list[TopicPlan]:
        return [topic for topic in self._topics if topic.environment == environment]

    def _recover(self, environment: str, outage: Outage, progress: Progress | None) -> _Scan:
        for topic in self._of(environment):
            for plan in topic.subscriptions:
                shards = topic.shards_of(plan.subscription)
                # A group that was added during the outage has had no round yet.
                since_ms(plan.subscription, shards, rounds=self._rounds, memory=self._memory, clock=self._clock)
                for shard in shards:
                    self._begin(shard, outage)
        scan = _Scan(since_ms=outage.started_at_ms - OVERLAP_MS, progress=progress)
        self._clock.sleep(RECORDERS_RETURN_SECONDS)
        self._scan(environment, scan, outage=outage)
        self._waits = None
        self._outages.advance(outage, scan_position={"complete": True, **scan.position()}, scanned=scan.scanned)
        self._events.emit(
            OutageScanned(
                environment=environment,
                started_at_ms=outage.started_at_ms,
                since_ms=scan.since_ms,
                until_ms=dict(scan.until_ms),
                scanned=scan.scanned,
                by_subscription=dict(scan.by_subscription),
                left_out=dict(scan.left_out),
            )
        )
        self._let_rounds_run(outage, {"complete": True, **scan.position()}, scan.scanned)
        return scan

    def _let_rounds_run(self, outage: Outage, scan_position: Mapping[str, object], scanned: int) -> None:
        self._clock.sleep(ANNOUNCEMENTS_RETURN_SECONDS)
        self._outages.advance(outage, scan_position={**scan_position, "rounds": True}, scanned=scanned)

    def _begin(self, shard: Shard, outage: Outage) -> None:
        try:
            if self._memory.state(shard).epoch is None:
                # The loss is stored before the marker is written again. Otherwise a crash in between would hide the
                # loss for ever.
                if self._rounds.last(shard) is not None:
                    self._outages.note_reason(outage, "MEMORY_LOST")
                self._memory.begin_epoch(shard)
        except InvariantViolation:
            # The shard's own round stops and reports the error. The other shards must not wait for that shard.
            return

    def _scan(self, environment: str, scan: _Scan, *, outage: Outage | None) -> None:
        plans = [
            (topic, plan.subscription)
            for topic in self._of(environment)
            for plan in topic.subscriptions
            if self._inbox.is_configured(plan.subscription)
        ]
        for _, subscription in plans:
            try:
                newest_ms = self._inbox.newest_ms(subscription)
            except ReconcilerError as error:
                self._leave_out(subscription, error, scan, outage)
                continue
            scan.until_ms[str(subscription)] = scan.since_ms if newest_ms is None else newest_ms
            scan.by_subscription[str(subscription)] = 0
        self._clock.sleep(SETTLE_SECONDS)
        for topic, subscription in plans:
            if str(subscription) in scan.until_ms:
                self._scan_inbox(topic, subscription, scan, outage)

    def _scan_inbox(self, topic: TopicPlan, subscription: Subscription, scan: _Scan, outage: Outage | None) -> None:
        name = str(subscription)
        after: tuple[int, str] | None = None
        while True:
            try:
                page = self._inbox.applied_since(
                    subscription, since_ms=scan.since_ms, after=after, limit=self._page_rows
                )
            except ReconcilerError as error:
                self._leave_out(subscription, error, scan, outage)
                return
            # Texts and bytes sort after every time, so the values that follow cannot be compared with a time.
            rows = [row for row in page if _is_until(row.applied_at_ms, scan.until_ms[name])]
            if rows:
                # An incomplete effect is left out, because nobody would look at a matched key.
                sound = [row.unique_key for row in rows if row.damage is None and row.incomplete is None]
                self._record(topic, subscription, sound, scan)
                after = (rows[-1].applied_at_ms, rows[-1].unique_key)
                scan.scanned += len(rows)
                scan.by_subscription[name] += len(rows)
                self._note_progress(scan, outage)
            if len(rows) < self._page_rows:
                return

    def _record(self, topic: TopicPlan, subscription: Subscription, unique_keys: Sequence[str], scan: _Scan) -> None:
        try:
            self._commit_sets.record(subscription, unique_keys, shards=topic.shards)
        except RedisAway:
            raise
        except ReconcilerError as error:
            # A key of the shard has a wrong type. The shard's own round stops and reports that, and the keys of the
            # other shards are recorded.
            scan.leave_out(subscription, error)

    def _leave_out(
        self, subscription: Subscription, error: ReconcilerError, scan: _Scan, outage: Outage | None
    ) -> None:
        """Records that an inbox cannot be read. Raises DatabaseAway while another try makes sense."""
        if outage is not None and isinstance(error, TransientError):
            now_seconds = self._clock.monotonic_seconds()
            if self._waits is None or self._waits[0] != outage.started_at_ms:
                self._waits = (outage.started_at_ms, now_seconds)
            left_seconds = self._waits[1] + INBOX_WAIT_SECONDS - now_seconds
            if left_seconds > 0:
                raise DatabaseAway(
                    f"rounds and announcements wait up to {left_seconds:.0f} s more for the inbox of {subscription}, "
                    f"then it is left out of the scan: {error}"
                ) from error
        scan.leave_out(subscription, error)

    def _note_progress(self, scan: _Scan, outage: Outage | None) -> None:
        if outage is not None:
            self._outages.advance(outage, scan_position=scan.position(), scanned=scan.scanned)
        if scan.progress is not None:
            scan.progress(scan.scanned)
