"""Step 9: asks the witnesses what `judgement.judge` wants to know, cheapest first, and stops as soon as it is decided.

Inbox and outbox are asked for up to 500 keys at once. Per round and topic the group's positions are read first and
the index horizon is proved second, both before any look-up whose "not found" counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.contract.tables import EVERY_GROUP, CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow, Presence, QueuePosition, StoredMessage, Watermark
from reconciler.policy.judging.delivery import own_halves, row_of
from reconciler.policy.judging.dossier import Bench, Dossier, HalfAge, Question, evidence_of, taken_back
from reconciler.policy.judging.judgement import Ruling, ask_again_seconds, judge, state_of, wait_seconds
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports import (
    WHENEVER_COMMITTED_MS,
    BrokerEvidence,
    Candidate,
    Horizon,
    InboxEvidence,
    KnownBrokers,
    OneByOne,
    OutboxEvidence,
    Repair,
    Repairs,
    Verification,
    Workers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRules:
    """How careful."""

    skew_margin_seconds: float = 10.0
    #: How long a half is left to the broker's check-back; None: asked from the broker.
    check_back_wait_seconds: float | None = None
    #: A broker that has been missing in the route for longer holds nothing that could still be found.
    retention_seconds: float = 72 * 3600.0
    #: Brokers that will never be back, as an operator says.
    retired_brokers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A key with its verdict, ready to be written down."""

    dossier: Dossier
    verification: Verification

    @property
    def asked_brokers(self) -> bool:
        """True if the databases alone did not decide."""
        return self.dossier.copies is not None

    @property
    def reached_half(self) -> bool:
        """True if the half was asked for: rung 4 of the ladder."""
        return self.dossier.halves is not None

    @property
    def found_nowhere(self) -> bool:
        """True if the ladder ended with no copy of any kind on any broker."""
        return self.verification.verdict is Verdict.EXPIRED

    @property
    def begins_anew(self) -> bool:
        """True if the ledger has closed the key and would drop the verdict: a closed row keeps the higher state."""
        known, state = self.dossier.known, self.verification.state
        if known is None or known.state is CandidateState.OPEN:
            return False
        if state is CandidateState.OPEN:
            return True
        # REJECTED was said of an announcement that came before its commit, FILTERED of another setting: they outrank
        # nothing that is seen later. Nor does the first effect of a key outrank its second one.
        is_doubled = known.verdict is Verdict.CONSUMED and self.verification.verdict is Verdict.COLLISION
        is_of_its_time = known.verdict in {Verdict.REJECTED, Verdict.FILTERED}
        return state is CandidateState.QUARANTINED and (is_of_its_time or is_doubled)


class BrokerSnapshot:
    """What one round asks the brokers once: positions, then horizon. Counts look-ups. One thread, one round."""

    def __init__(self, brokers: BrokerEvidence, plan: SubscriptionPlan, *, now_ms: int | None = None) -> None:
        """`now_ms`: Redis TIME of the round; None: a person asks about one key."""
        self._brokers = brokers
        self._plan = plan
        self.now_ms = now_ms
        self._positions: Sequence[QueuePosition] | None = None
        self._horizon: Horizon | None = None
        self.look_ups = 0

    def horizon(self) -> Horizon:
        """The horizon of this round; positions are read before it, so a retry copy of a passed message is covered."""
        if self._horizon is None:
            self._positions = self._brokers.positions(self._plan.subscription)
            self._horizon = self._brokers.horizon(self._plan.subscription.topic)
            # The probe is looked up on every broker, too.
            self.look_ups += max(1, len(self._horizon.at_ms))
        return self._horizon

    @property
    def broker_times_ms(self) -> Sequence[int]:
        """Times of the brokers' own clocks, if they were asked in this round."""
        return list(self._horizon.at_ms.values()) if self._horizon is not None else []

    def positions(self) -> Sequence[QueuePosition] | None:
        """The group's offsets; None if a broker did not answer."""
        self.horizon()
        return self._positions

    def count(self, lookup: Lookup[StoredMessage]) -> None:
        """Counts one QUERY_MESSAGE a broker that answered."""
        self.look_ups += max(1, len(lookup.answers))


class Verifier:
    """The verification ladder over ports. Holds no state between calls."""

    def __init__(
        self,
        *,
        brokers: BrokerEvidence,
        outbox: OutboxEvidence,
        inbox: InboxEvidence,
        repairs: Repairs,
        known_brokers: KnownBrokers,
        rules: VerifyRules,
        workers: Workers | None = None,
    ) -> None:
        """`workers` ask brokers about several keys at once; without them one key after the other."""
        self._workers = workers or OneByOne()
        self._brokers = brokers
        self._known_brokers = known_brokers
        self._outbox = outbox
        self._inbox = inbox
        self._repairs = repairs
        self._rules = rules

    def bench(self, topic: TopicPlan, plan: SubscriptionPlan) -> Bench:
        """Who judges: which witnesses are configured."""
        return Bench(
            topic=topic,
            plan=plan,
            has_outbox=self._outbox.is_configured(topic.topic),
            has_inbox=self._inbox.is_configured(plan.subscription),
            skew_margin_seconds=self._rules.skew_margin_seconds,
        )

    def recall_brokers(self, topic: TopicPlan) -> None:
        """Before anything is asked of brokers: those that have left the route count as witnesses, too.

        The memory is the ledger's, so that a process that starts while a broker is away knows that it exists.
        """
        seen = self._brokers.brokers_seen(topic.topic)
        keep_seconds = self._rules.retention_seconds
        known = self._known_brokers.note(topic.environment, topic.topic, seen, keep_seconds=keep_seconds)
        self._brokers.expect(topic.topic, known - self._rules.retired_brokers)

    def watermark(self, plan: SubscriptionPlan) -> Watermark:
        """The group's low watermark: the gate."""
        return self._brokers.watermark(plan.subscription)

    def snapshot(self, plan: SubscriptionPlan, *, now_ms: int | None = None) -> BrokerSnapshot:
        """One a round, with its Redis TIME."""
        return BrokerSnapshot(self._brokers, plan, now_ms=now_ms)

    def verify(
        self, topic: TopicPlan, plan: SubscriptionPlan, suspects: Sequence[Dossier], snapshot: BrokerSnapshot
    ) -> list[Judgement]:
        """Verdicts for at most PAGE_KEYS keys, in their order. Writes nothing."""
        bench = self.bench(topic, plan)
        repairs = self._repairs_of(topic, [s.unique_key for s in suspects if s.known is not None])
        now_ms = snapshot.now_ms
        dossiers = {s.unique_key: replace(s, repair=repairs.get(s.unique_key), now_ms=now_ms) for s in suspects}
        findings: dict[str, Ruling] = {}
        open_keys = list(dossiers)
        while open_keys:
            asked: dict[Question, list[str]] = {}
            for key in open_keys:
                answer = judge(dossiers[key], bench)
                if isinstance(answer, Ruling):
                    findings[key] = answer
                else:
                    asked.setdefault(answer, []).append(key)
            for question, keys in asked.items():
                for answered in self._ask(question, [dossiers[key] for key in keys], bench, snapshot):
                    dossiers[answered.unique_key] = answered
            open_keys = [key for keys in asked.values() for key in keys]
        return [_judged(dossiers[key], findings[key], bench) for key in dossiers]

    def ask_again(self, topic: TopicPlan, plan: SubscriptionPlan, rows: Sequence[Candidate]) -> list[Dossier]:
        """What a closed row lacked, asked once more: its outbox row if it is REJECTED, else its effect. In order."""
        bench, snapshot = self.bench(topic, plan), self.snapshot(plan)
        asked: dict[Question, list[Dossier]] = {}
        for row in rows:
            question = Question.OUTBOX if row.verdict is Verdict.REJECTED else Question.INBOX
            dossier = Dossier(unique_key=row.unique_key, first_seen_ms=row.first_seen_ms, shard=row.shard, known=row)
            asked.setdefault(question, []).append(dossier)
        answered = {
            dossier.unique_key: dossier
            for question, dossiers in asked.items()
            for dossier in self._ask(question, dossiers, bench, snapshot)
        }
        return [answered[row.unique_key] for row in rows]

    def _repairs_of(self, topic: TopicPlan, unique_keys: Sequence[str]) -> Mapping[str, Repair]:
        if not unique_keys:
            return {}
        rows = self._repairs.read(topic.environment, topic.topic, unique_keys)
        return {key: row for key, found in rows.items() for row in found if row.scope == EVERY_GROUP}

    def _ask(
        self, question: Question, dossiers: Sequence[Dossier], bench: Bench, snapshot: BrokerSnapshot
    ) -> list[Dossier]:
        keys = [d.unique_key for d in dossiers]
        match question:
            case Question.INBOX:
                inbox = self._inbox.read(bench.plan.subscription, keys)
                return [replace(d, inbox=_inbox_of(inbox, d)) for d in dossiers]
            case Question.INBOX_AGAIN:
                inbox = self._inbox.read(bench.plan.subscription, keys)
                return [replace(d, inbox_again=_inbox_of(inbox, d)) for d in dossiers]
            case Question.OUTBOX:
                outbox = self._outbox.read(bench.topic.topic, self._committed_before_ms(dossiers))
                return [replace(d, outbox=_outbox_of(outbox, d)) for d in dossiers]
            case _:
                return self._ask_brokers(question, dossiers, bench, snapshot)

    def _ask_brokers(
        self, question: Question, dossiers: Sequence[Dossier], bench: Bench, snapshot: BrokerSnapshot
    ) -> list[Dossier]:
        # Once, before any look-up, on this thread; look-ups are counted on it, too.
        horizon, positions = snapshot.horizon(), snapshot.positions()
        answered = self._workers.map(lambda d: self._look_up(question, d, bench, horizon), dossiers)
        for one in answered:
            for lookup in _look_ups_of(question, one):
                snapshot.count(lookup)
        if question is Question.COMMITTED_COPIES:
            answered = [replace(one, positions=positions) for one in answered]
        return answered

    def _look_up(self, question: Question, d: Dossier, bench: Bench, horizon: Horizon) -> Dossier:
        """One more answer of brokers; runs on whatever thread asks, touches nothing of this object's."""
        topic = bench.topic.topic
        not_before_ms = self._not_before_ms(d)
        match question:
            case Question.COMMITTED_COPIES | Question.COPIES_AGAIN:
                copies = self._brokers.committed_copies(
                    topic, d.unique_key, horizon=horizon, not_before_ms=not_before_ms
                )
                is_again = question is Question.COPIES_AGAIN
                return replace(d, copies_again=copies) if is_again else replace(d, copies=copies)
            case Question.GROUP_COPIES:
                of_group = self._brokers.group_copies(bench.plan.subscription, d.unique_key, horizon=horizon)
                return replace(d, group_copies=of_group)
            case Question.HALF_COPIES:
                halves = self._brokers.half_copies(
                    topic, d.unique_key, horizon=horizon, not_before_ms=not_before_ms, outbox=row_of(d.outbox)
                )
                return replace(d, halves=halves)
            case Question.PARKED_COPIES:
                parked = self._brokers.parked_copies(topic, d.unique_key, horizon=horizon, not_before_ms=not_before_ms)
                return replace(d, parked=parked)
            case Question.FILTER_KIND:
                return replace(d, filter_kind=self._brokers.filter_kind(bench.plan.subscription))
            case _:
                return replace(d, check_back=self._check_back(d, bench, horizon))

    def _committed_before_ms(self, dossiers: Sequence[Dossier]) -> Mapping[str, int]:
        """Keys for an outbox: it must have come as far as that. 0: nobody announced the key, a person asks for it."""
        return {d.unique_key: self._not_before_ms(d) if d.first_seen_ms else WHENEVER_COMMITTED_MS for d in dossiers}

    def _not_before_ms(self, d: Dossier) -> int:
        """ "Not found" counts only if the witness had passed the announcement by more than the clocks may differ."""
        return d.first_seen_ms + round(self._rules.skew_margin_seconds * 1000)

    def _check_back(self, d: Dossier, bench: Bench, horizon: Horizon) -> HalfAge:
        halves = d.halves or Lookup(presence=Presence.ABSENT)
        own = own_halves(halves, topic=bench.topic, row=row_of(d.outbox)).records
        newest = own[-1]
        # Put-back copies have fresh store times: the age is that of the first copy, in its broker's own time. A
        # broker without a horizon did not prove how late it is there: the half counts as just born.
        now_ms = horizon.at_ms.get(newest.broker, 0)
        wait = self._rules.check_back_wait_seconds
        return HalfAge(
            age_seconds=max(0.0, (now_ms - min(copy.store_timestamp_ms for copy in own)) / 1000),
            wait_seconds=self._brokers.check_back_wait_seconds(newest) if wait is None else wait,
            rollback_evident_after_seconds=self._brokers.rollback_evident_after_seconds(newest),
        )


def _look_ups_of(question: Question, d: Dossier) -> list[Lookup[StoredMessage]]:
    """What was just asked of brokers by key."""
    match question:
        case Question.COMMITTED_COPIES:
            asked = [d.copies]
        case Question.COPIES_AGAIN:
            asked = [d.copies_again]
        case Question.GROUP_COPIES:
            asked = list((d.group_copies or {}).values())
        case Question.HALF_COPIES:
            asked = [d.halves]
        case Question.PARKED_COPIES:
            asked = [d.parked]
        case _:
            asked = []
    return [lookup for lookup in asked if lookup is not None]


def _inbox_of(read: Mapping[str, Lookup[InboxRow]], d: Dossier) -> Lookup[InboxRow]:
    return read.get(d.unique_key) or Lookup.unknown("inbox", "the key is missing in the answer")


def _outbox_of(read: Mapping[str, Lookup[OutboxRow]], d: Dossier) -> Lookup[OutboxRow]:
    return read.get(d.unique_key) or Lookup.unknown("outbox", "the key is missing in the answer")


def _judged(dossier: Dossier, finding: Ruling, bench: Bench) -> Judgement:
    attempts = dossier.known.attempts if dossier.known is not None else 0
    grace = bench.plan.grace_period_seconds
    return Judgement(
        dossier=dossier,
        verification=Verification(
            unique_key=dossier.unique_key,
            verdict=finding.verdict,
            evidence=evidence_of(dossier, bench, reason=finding.reason) | taken_back(dossier, finding.verdict),
            first_seen_ms=dossier.first_seen_ms,
            state=state_of(finding.verdict),
            wait_seconds=wait_seconds(finding, attempts=attempts, grace_period_seconds=grace),
            ask_again_seconds=ask_again_seconds(finding, dossier),
        ),
    )
