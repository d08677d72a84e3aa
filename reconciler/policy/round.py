"""Steps 7 to 10 for one subscription, in reading order. This module imports no driver and has no clock of its own. Only
token buckets and cursors are in memory, so a crash between any two lines costs only time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import HoldKind
from reconciler.errors import RedisAway, RedisUnasked
from reconciler.policy.brakes import CircuitBreaker, TokenBucket
from reconciler.policy.events import (
    EventSink,
    OutageClosed,
    OutageOpened,
    RoundFinished,
)
from reconciler.policy.evidence import as_foreign
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.inquiry.witnesses import BrokerSnapshot
from reconciler.policy.judging.absence_review import review_absences
from reconciler.policy.judging.clock_reading import apart_seconds
from reconciler.policy.judging.earlier_since import EarlierSince
from reconciler.policy.judging.judge import Judge, JudgedKey
from reconciler.policy.judging.selection import SuspectSelection, SuspectSelector, WatermarkGate, gate_of
from reconciler.policy.judging.suspect import Suspect
from reconciler.policy.judging.tag_filter import TagFilter
from reconciler.policy.keys_by_hand import KeysByHand
from reconciler.policy.known_plans import KnownPlans
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.evidence import OutboxEvidence
from reconciler.policy.ports.ledger import Candidates, Outage, Outages, Repairs
from reconciler.policy.ports.rounds import ShardMemory
from reconciler.policy.repairing.case import RepairReport
from reconciler.policy.repairing.repair import Repairer
from reconciler.policy.round_tally import RoundTally
from reconciler.policy.shard_rounds import ShardRound, ShardRounds
from reconciler.policy.verdict_writer import VerdictWriter

OUTAGE_OPEN = Code("round.outage-open", reason=Field.NAME)
SUSPENDED = Code("round.suspended", reason=Field.NAME, detail=Field.FACT)
NO_EPOCH_MARKER = Code("round.no-epoch-marker", shard=Field.NAME, shards=Field.NUMBER)
SHARDS_WAIT = Code("round.shards-wait", waiting=Field.NUMBER, shards=Field.NUMBER)

#: Look-ups per second and subscription while the gate is shut.
TRICKLE_PER_SECOND = 1.0
TRICKLE_BURST = 10.0
#: Pause between two looks at a group's queues while none of its keys is due.
NOTE_QUEUES_SECONDS = 60.0
#: Maximum number of passes over due keys in one round, as long as databases alone settle most keys of the last pass.
CATCH_UP_PASSES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """The report of one round of a subscription."""

    subscription: Subscription
    #: Why nothing ran: Redis is away, or an outage is not over; None: the round ran.
    suspended: Fact | None = None
    #: The main event; None if suspended.
    event: RoundFinished | None = None
    #: Keys that this round judged. The passes between first and last leave out what databases alone settled.
    judged: tuple[JudgedKey, ...] = ()
    repairs: RepairReport = field(default_factory=RepairReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningRound:
    """One round of one subscription: its plans, the brokers' answers, and its results so far."""

    topic: TopicPlan
    plan: SubscriptionPlan
    snapshot: BrokerSnapshot
    tally: RoundTally


class ReconcileRound:
    """Runs the rounds of all subscriptions, one after the other. Used by one thread only; several processes do no
    harm."""

    def __init__(
        self,
        topics: Sequence[TopicPlan],
        *,
        shards: ShardRounds,
        memory: ShardMemory,
        selector: SuspectSelector,
        judge: Judge,
        repairer: Repairer,
        breaker: CircuitBreaker,
        candidates: Candidates,
        repairs: Repairs,
        outages: Outages,
        outbox: OutboxEvidence,
        clock: Clock,
        owner: str,
        events: EventSink,
    ) -> None:
        """`repairs`: for keys by hand alone. A round changes repairs through the Repairer."""
        self._plans = KnownPlans(topics, shards)
        self.shards = shards
        self._memory = memory
        self._selector = selector
        self._judge = judge
        self._repairer = repairer
        self._breaker = breaker
        self._candidates = candidates
        self._outages = outages
        self._clock = clock
        self._owner = owner
        self._events = events
        self._writer = VerdictWriter(
            memory=memory, candidates=candidates, repairer=repairer, clock=clock, events=events
        )
        #: The same parts, for single keys that a person names.
        self.keys_by_hand = KeysByHand(
            self._plans, judge=judge, repairer=repairer, writer=self._writer, candidates=candidates, repairs=repairs,
            outbox=outbox, clock=clock,
        )  # fmt: skip
        self._earlier_since = EarlierSince(candidates, skew_margin_seconds=selector.rules.skew_margin_seconds)
        self._tag_filter = TagFilter(memory=memory, outbox=outbox, events=events)
        self._trickles: dict[Subscription, TokenBucket] = {}
        #: Subscriptions with closed rows that the last round had no place to review.
        self._unreviewed: set[Subscription] = set()
        #: When a group's queues are looked at again although no key is due, in monotonic seconds.
        self._queues_noted_until: dict[Subscription, float] = {}

    # ---- the round

    @property
    def may_rest(self) -> bool:
        """Returns False if the next round has something to do in any case."""
        return not self._unreviewed and all(map(self._earlier_since.has_ended, self._plans))

    def run(self, subscription: Subscription) -> RoundReport:
        """Runs one round over all shards. If Redis is away, opens an outage instead. Raises DatabaseAway, RedisUnasked.

        If shards lie on several servers, an AWAY outage stops only the shards of the server that is away.
        """
        outage = self._outages.current(subscription.environment)
        shards: Sequence[Shard] = self._plans.topic_of(subscription).shards_of(subscription)
        if outage is not None:
            self.shards.wake(shards)
            shards = [shard for shard in shards if outage.rounds_may_run or self.shards.goes_on(shard, outage)]
        if outage is not None and not shards:
            return RoundReport(subscription=subscription, suspended=OUTAGE_OPEN(reason=outage.reason))
        try:
            topic, plan = self._plans.of(subscription, begins=True)
            return self._round(topic, plan, shards, outage)
        except RedisUnasked:
            raise  # this process may be the only one that cannot go on
        except RedisAway as error:
            return self._suspend(subscription, "AWAY", as_foreign(str(error)), outage)

    def _round(
        self, topic: TopicPlan, plan: SubscriptionPlan, may_run: Sequence[Shard], outage: Outage | None
    ) -> RoundReport:
        began_seconds = self._clock.monotonic_seconds()
        rounds, away = self._take_rounds(may_run)
        lost = [r.shard for r in rounds if r.lost_memory]
        if lost:
            detail = NO_EPOCH_MARKER(shard=str(lost[0]), shards=len(lost))
            return self._suspend(plan.subscription, "MEMORY_LOST", detail, outage)
        if away:
            self._suspend(plan.subscription, "AWAY", as_foreign(away[0]), outage)
        elif outage is not None and outage.rounds_may_run:
            self._close(outage)
        ours = [r for r in rounds if r.is_ours]
        tally = RoundTally(announced=sum(r.done.counts.announced for r in ours if r.done is not None))
        if waiting := topic.shards - len(rounds):
            tally.problems.append(SHARDS_WAIT(waiting=waiting, shards=topic.shards))
        with tally.beyond_bugs():
            tally.not_taken, tally.going_on = self._tag_filter.leave(
                topic, plan, [r.shard for r in ours if r.may_have_apart]
            )

        self._judge.recall_brokers(topic)
        gate = self._gate(plan, ours)
        ceiling = self._breaker.ceiling(plan.subscription, tally.load())
        shards = [r.shard for r in ours]
        select = partial(self._selector.select, topic, plan, shards, gate, going_on=tally.going_on)
        passes = self._selector.behind_gate(topic, plan, shards, gate, going_on=tally.going_on)
        snapshot = self._judge.snapshot(topic, plan, now_ms=self._judged_at_ms(ours))
        running = _RunningRound(topic=topic, plan=plan, snapshot=snapshot, tally=tally)
        trickle = self._trickle(plan)
        behind = self._sort_out(running, passes, trickle)
        keys_max = self._selector.rules.candidates_max
        selection = select(behind=behind, trickle=trickle, count_until=ceiling, keys_max=keys_max)
        self._look_at(running, selection)
        self._judge_trickle(running, selection.trickle)
        if selection.has_more:
            self._catch_up(running, select)
        load = tally.load()
        self._breaker.open_if(plan.subscription, self._breaker.implausible(plan.subscription, load))

        repairs = self._repairer.run(topic)
        self._breaker.round_ended(
            plan.subscription,
            load,
            began_seconds=began_seconds,
            has_shards=bool(ours),
            is_open=HoldKind.BREAKER in repairs.holds,
            siblings=[p.subscription for p in topic.subscriptions],
        )
        self._unreviewed.discard(plan.subscription)
        if ours:
            with tally.beyond_bugs():
                tally.problems += self._review_absences(running)
                tally.problems += self._earlier_since.open_again(topic, plan, {shard.number for shard in shards})
        took_seconds = self._clock.monotonic_seconds() - began_seconds
        event = self._event(running, rounds, gate, repairs, took_seconds)
        self._events.emit(event)
        tally.raise_failure()
        return RoundReport(subscription=plan.subscription, event=event, judged=tuple(tally.judged), repairs=repairs)

    def release(self) -> None:
        """Gives back every lease at shutdown. If this raises RedisAway, the leases end by themselves."""
        for subscription in self._plans:
            for shard in self._plans.topic_of(subscription).shards_of(subscription):
                self.shards.release(shard)

    # ---- steps

    def _take_rounds(self, shards: Sequence[Shard]) -> tuple[list[ShardRound], list[str]]:
        """Runs step 7 on each shard. Also returns the servers that are away. Raises RedisAway if no shard answers."""
        rounds: list[ShardRound] = []
        away: list[RedisAway] = []
        small = self.shards.run_small(shards)
        for shard in shards:
            try:
                rounds.append(small.get(shard) or self.shards.run(shard))
            except RedisAway as error:
                if not self._memory.is_spread or isinstance(error, RedisUnasked):
                    raise
                away.append(error)
        if away and not rounds:
            raise away[0]
        return rounds, [str(error) for error in away]

    def _close(self, outage: Outage) -> None:
        if self._outages.finish(outage):
            self._events.emit(
                OutageClosed(
                    environment=outage.environment,
                    started_at_ms=outage.started_at_ms,
                    reason=outage.reason,
                    scanned=outage.scanned,
                )
            )

    def _suspend(self, subscription: Subscription, reason: str, detail: Fact, known: Outage | None) -> RoundReport:
        """Opens the outage, or starts the scan of the open one again. `known`: the outage that was open before."""
        outage = self._outages.open(subscription.environment, reason=reason, noticed_by=self._owner)
        if outage.is_scanned:
            self._outages.advance(outage, scan_position={"again": reason}, scanned=0)
        elif reason == "MEMORY_LOST" and outage.reason == "AWAY":
            self._outages.note_reason(outage, reason)
        if known is None or known.rounds_may_run:
            self._events.emit(OutageOpened(environment=subscription.environment, reason=reason, detail=detail))
        return RoundReport(subscription=subscription, suspended=SUSPENDED(reason=reason, detail=detail))

    def _gate(self, plan: SubscriptionPlan, ours: Sequence[ShardRound]) -> WatermarkGate:
        """Asks for the gate if a key is old enough or open again: once per round, before any question about a key."""
        now_ms = max((r.now_ms for r in ours), default=0)
        old_until_ms = now_ms - round(plan.grace_period_seconds * 1000)
        oldest_ms = min((r.oldest_pending_ms for r in ours if r.oldest_pending_ms is not None), default=None)
        is_due = oldest_ms is not None and oldest_ms <= old_until_ms
        if not is_due and not self._has_open_rows(plan, ours):
            if ours:
                self._note_queues(plan)
            return WatermarkGate(state="not asked", due_until_ms=-1, old_until_ms=-1, now_ms=now_ms)
        watermark = self._judge.watermark(plan)
        return gate_of(now_ms, watermark, plan=plan, rules=self._selector.rules)

    def _note_queues(self, plan: SubscriptionPlan) -> None:
        """Looks at the queues now and then while no key is due, so that later looks show which records the queues
        lost."""
        now = self._clock.monotonic_seconds()
        if now >= self._queues_noted_until.get(plan.subscription, now):
            self._queues_noted_until[plan.subscription] = now + NOTE_QUEUES_SECONDS
            self._judge.watermark(plan)

    def _has_open_rows(self, plan: SubscriptionPlan, ours: Sequence[ShardRound]) -> bool:
        """Returns True if the gate matters to a ledger row: a key that was opened again is not pending in Redis."""
        numbers = {r.shard.number for r in ours}
        rows = self._candidates.open_due(plan.subscription, shards=numbers, limit=PAGE_KEYS) if numbers else ()
        return any(row.loss_verdict is None for row in rows)

    def _judged_at_ms(self, ours: Sequence[ShardRound]) -> int | None:
        """Returns the time with which the outbox's times are compared. While Redis' clock is behind, every commit would
        look too young. So then this process' time counts, if it is later."""
        now_ms = max((r.now_ms for r in ours), default=None)
        if now_ms is not None and any(r.clock_behind_seconds for r in ours):
            return max(now_ms, self._clock.now_ms())
        return now_ms

    def _trickle(self, plan: SubscriptionPlan) -> int:
        bucket = self._trickles.get(plan.subscription)
        if bucket is None:
            bucket = self._trickles[plan.subscription] = TokenBucket(TRICKLE_PER_SECOND, burst=TRICKLE_BURST)
        return bucket.available(self._clock.monotonic_seconds())

    def _sort_out(
        self,
        running: _RunningRound,
        passes: Iterable[SuspectSelection],
        trickle: int,
    ) -> list[Suspect]:
        """Settles what databases alone can settle, 500 keys per statement. Returns the `trickle` oldest other keys.

        Otherwise, in a group that lags, a flood of forged keys, or of keys that have arrived, would hide losses.
        """
        others: list[Suspect] = []
        for selection in passes if trickle > 0 else ():
            self._leave(selection, running.tally)
            for start in range(0, len(selection.due), PAGE_KEYS):
                page = self._still_ours(running.plan, selection.due[start : start + PAGE_KEYS])
                began_seconds = self._clock.monotonic_seconds()
                with running.tally.beyond_bugs():
                    judged = self._judge.judge_keys(
                        running.topic, [replace(suspect, gate_open=False) for suspect in page], running.snapshot
                    )
                    settled = running.tally.sort_out(judged)
                    running.tally.settled += self._writer.write(running.topic, running.plan, settled, began_seconds)
                    done = {j.suspect.unique_key for j in settled}
                    others += [suspect for suspect in page if suspect.unique_key not in done]
                if len(others) >= trickle:
                    return others[:trickle]
        return others

    def _look_at(
        self,
        running: _RunningRound,
        selection: SuspectSelection,
    ) -> None:
        running.tally.became_due += selection.became_due
        self._leave(selection, running.tally)
        self._judge_pages(running, selection.due)

    def _leave(self, selection: SuspectSelection, tally: RoundTally) -> None:
        """Removes keys that the ledger has closed, and members that are no keys, from pending without a look-up."""
        tally.settled += sum(self._writer.forget(shard, keys) for shard, keys in selection.closed.items())
        for shard, members in selection.misshapen.items():
            self._memory.forget(shard, members)
            tally.note_misshapen(shard, members)

    def _judge_pages(
        self,
        running: _RunningRound,
        suspects: Sequence[Suspect],
    ) -> None:
        for start in range(0, len(suspects), PAGE_KEYS):
            self._breaker.renew_after_storm(running.plan.subscription)
            page = self._still_ours(running.plan, suspects[start : start + PAGE_KEYS])
            began_seconds = self._clock.monotonic_seconds()
            with running.tally.beyond_bugs():
                done = self._judge.judge_keys(running.topic, page, running.snapshot)
                running.tally.judged += done
                # Comes before the repairs of these keys are opened, because another process could begin them at once.
                so_far = replace(running.tally.load(), left_over=0)  # the remaining keys are not left over yet
                too_many = self._breaker.too_many(running.plan.subscription, so_far)
                self._breaker.open_if(running.plan.subscription, too_many)
                running.tally.settled += self._writer.write(running.topic, running.plan, done, began_seconds)

    def _catch_up(
        self,
        running: _RunningRound,
        select: Callable[..., SuspectSelection],
    ) -> None:
        """Makes further passes. After Redis fell back, or recorders were away, most due keys have arrived. In a flood
        of forged announcements, most keys were never committed. Databases show both cases cheaply. Only keys for which
        brokers are asked use up the round's room."""
        for _ in range(CATCH_UP_PASSES - 1):
            keys_max = self._selector.rules.candidates_max - running.tally.asked_brokers
            if keys_max <= 0 or not running.tally.last_pass_settled():
                return
            running.tally.begin_pass()
            selection = select(trickle=0, count_until=-1, keys_max=keys_max)
            self._look_at(running, selection)
            if not selection.has_more:
                return

    def _judge_trickle(
        self,
        running: _RunningRound,
        suspects: Sequence[Suspect],
    ) -> None:
        before = running.snapshot.look_ups
        self._judge_pages(running, suspects)
        self._trickles[running.plan.subscription].charge(running.snapshot.look_ups - before)

    def _still_ours(self, plan: SubscriptionPlan, page: Sequence[Suspect]) -> list[Suspect]:
        """Renews the leases of the page's shards. Keys of a lost shard are left to its new owner."""
        kept = {
            number: self.shards.keeps(Shard(subscription=plan.subscription, number=number))
            for number in sorted({suspect.shard for suspect in page})
        }
        return [suspect for suspect in page if kept[suspect.shard]]

    def _review_absences(self, running: _RunningRound) -> Sequence[Fact]:
        topic, plan, snapshot, rules = running.topic, running.plan, running.snapshot, self._selector.rules
        review = review_absences(topic, plan, self._candidates, self._judge, rules=rules, snapshot=snapshot)
        if review.has_more:
            self._unreviewed.add(plan.subscription)
        return review.told

    def _event(
        self,
        running: _RunningRound,
        rounds: Sequence[ShardRound],
        gate: WatermarkGate,
        repairs: RepairReport,
        took_seconds: float,
    ) -> RoundFinished:
        done = [r.done for r in rounds if r.done is not None]
        resting = [r for r in rounds if r.is_at_rest]
        now_ms = max(r.now_ms for r in rounds)
        oldest_ms = min((r.oldest_pending_ms for r in rounds if r.oldest_pending_ms is not None), default=now_ms)
        return RoundFinished(
            subscription=running.plan.subscription,
            at_ms=max((*(d.at_ms for d in done), *(r.now_ms for r in resting)), default=0),
            shards_run=len(done) + len(resting),
            shards_skipped=running.topic.shards - len(done) - len(resting),
            announced=sum(d.counts.announced for d in done),
            matched=sum(d.counts.matched + d.counts.pending_matched for d in done),
            pending_after=sum(r.pending for r in rounds),
            oldest_pending_seconds=max(0.0, (now_ms - oldest_ms) / 1000),
            gate=gate.state,
            gate_detail=gate.detail,
            watermark_ms=gate.watermark_ms,
            became_due=running.tally.became_due,
            verified=running.tally.verified,
            settled=running.tally.settled,
            not_taken=running.tally.not_taken,
            broker_look_ups=running.snapshot.look_ups,
            verdicts=running.tally.verdicts(),
            repairs=repairs.counts,
            holds=tuple(str(kind) for kind in repairs.holds),
            weaker=self._judge.is_weaker(running.topic, running.plan),
            clock_behind_seconds=max(r.clock_behind_seconds for r in rounds),
            clocks_apart_seconds=apart_seconds(
                now_ms,
                running.snapshot.broker_times_ms,
                read_within_seconds=took_seconds,
                margin_seconds=self._judge.rules.skew_margin_seconds,
            ),
            duration_seconds=took_seconds,
            problems=(*(r.problem for r in rounds if r.problem is not None), *running.tally.problems),
        )
