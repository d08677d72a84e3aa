"""Step 9: judges keys. The pure function `judge` returns the next question, and the witnesses answer it, until the
verdict is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.contract.defaults import RETENTION_SECONDS, SKEW_MARGIN_SECONDS
from reconciler.contract.facts import Fact
from reconciler.contract.tables import EVERY_GROUP, CandidateState
from reconciler.contract.verdicts import SETTLING, Verdict
from reconciler.policy.evidence import Watermark
from reconciler.policy.inquiry.case_file import GroupAnswers
from reconciler.policy.inquiry.witnesses import BrokerSnapshot, Witnesses
from reconciler.policy.judging.half_review import review_half
from reconciler.policy.judging.judgement import Judgement, judge, state_of
from reconciler.policy.judging.suspect import (
    Suspect,
    evidence_of,
    handed_out_before,
    suspect_of,
    taken_back,
    undecided_by,
)
from reconciler.policy.judging.waits import ask_again_seconds, wait_seconds
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.evidence import (
    BrokerEvidence,
    BusinessQueries,
    HalfReading,
    InboxEvidence,
    OutboxEvidence,
)
from reconciler.policy.ports.ledger import Candidate, KnownBrokers, NotedHalves, Repair, Repairs, VerdictEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingRules:
    """Settings of the judging."""

    skew_margin_seconds: float = SKEW_MARGIN_SECONDS
    #: How long a half is left to the broker's check-back. None: as long as the broker says.
    check_back_wait_seconds: float | None = None
    #: A broker that the route has lacked for longer than this has no messages any more.
    retention_seconds: float = RETENTION_SECONDS
    #: Brokers that a person has declared gone for good (`rocketmq.retired_brokers`).
    retired_brokers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedKey:
    """A key with its verdict, ready to be written down."""

    suspect: Suspect
    entry: VerdictEntry

    @property
    def asked_brokers(self) -> bool:
        """True if databases alone did not decide the verdict."""
        return self.suspect.copies is not None

    @property
    def reached_half(self) -> bool:
        """True if the half was asked for, which is stage 4 of a verdict."""
        return self.suspect.halves is not None

    @property
    def found_nowhere(self) -> bool:
        """True if the last stage found no kind of copy on any broker."""
        return self.entry.verdict is Verdict.EXPIRED

    @property
    def supersedes_closed_row(self) -> bool:
        """True if the key's ledger row must be opened before the verdict is written.

        A closed row keeps the higher state and would ignore the verdict.
        """
        known, state = self.suspect.known, self.entry.state
        if known is None or known.state is CandidateState.OPEN or known.is_dismissed:
            return False
        if state is CandidateState.OPEN:
            return True
        # REJECTED was the verdict on an announcement before its commit, and FILTERED and BEFORE_SINCE came from older
        # settings. Later verdicts replace these. A second effect replaces the verdict on the first effect. So does an
        # incomplete effect in another inbox.
        is_no_one_effect = self.entry.verdict in {Verdict.COLLISION, Verdict.INCOMPLETE}
        is_corrected = known.verdict is Verdict.CONSUMED and is_no_one_effect
        is_of_its_time = known.verdict in SETTLING - {Verdict.CONSUMED}
        return state is CandidateState.QUARANTINED and (is_of_its_time or is_corrected)


class Judge:
    """Makes verdicts by asking ports. Holds no state between calls."""

    def __init__(
        self,
        *,
        brokers: BrokerEvidence,
        outbox: OutboxEvidence,
        inbox: InboxEvidence,
        repairs: Repairs,
        known_brokers: KnownBrokers,
        rules: JudgingRules,
        english: Callable[[Fact], str],
        queries: BusinessQueries | None = None,
        halves: NotedHalves | None = None,
        reading: HalfReading | None = None,
    ) -> None:
        """`english` writes texts for releases that know no codes."""
        self._witnesses = Witnesses(
            brokers=brokers,
            outbox=outbox,
            inbox=inbox,
            repairs=repairs,
            queries=queries,
            halves=halves,
            reading=reading,
            check_back_wait_seconds=rules.check_back_wait_seconds,
        )
        self._brokers = brokers
        self._known_brokers = known_brokers
        self._inbox = inbox
        self._repairs = repairs
        self.rules = rules
        self.english = english

    def is_weaker(self, topic: TopicPlan, plan: SubscriptionPlan) -> bool:
        """Returns True if by configuration the topic has no outbox, or the group no inbox."""
        return not (topic.evidence.has_outbox and self._inbox.is_configured(plan.subscription))

    def recall_brokers(self, topic: TopicPlan) -> None:
        """Makes brokers count as witnesses that have left the route. Call this before brokers are asked.

        The ledger remembers such brokers, so a process that starts while a broker is away knows of that broker.
        """
        seen = self._brokers.brokers_seen(topic.topic)
        keep_seconds = self.rules.retention_seconds
        known = self._known_brokers.note(topic.environment, topic.topic, seen, keep_seconds=keep_seconds)
        self._brokers.expect(topic.topic, known - self.rules.retired_brokers)

    def watermark(self, plan: SubscriptionPlan) -> Watermark:
        """Returns the group's low watermark. This watermark is the gate."""
        return self._brokers.watermark(plan.subscription)

    def snapshot(self, topic: TopicPlan, plan: SubscriptionPlan, *, now_ms: int | None = None) -> BrokerSnapshot:
        """Makes the snapshot of a round. `now_ms`: the round's Redis TIME. None: a person asks about one key."""
        return BrokerSnapshot(self._brokers, topic.topic, [plan], now_ms=now_ms)

    def judge_keys(self, topic: TopicPlan, suspects: Sequence[Suspect], snapshot: BrokerSnapshot) -> list[JudgedKey]:
        """Returns verdicts for at most PAGE_KEYS keys, in the same order. Writes nothing to the ledger."""
        now_ms = snapshot.now_ms
        repairs = self._repairs_of(topic, [s.unique_key for s in suspects if s.known is not None])
        distinct: dict[str, Suspect] = {}
        for s in suspects:
            of_scope = {row.scope: row for row in repairs.get(s.unique_key, ())}
            repair, hand_over = of_scope.get(EVERY_GROUP), of_scope.get(s.plan.group)
            distinct[s.unique_key] = replace(self._opened(s), repair=repair, hand_over=hand_over, now_ms=now_ms)
        opened = self._witnesses.ask_inboxes(list(distinct.values()))  # the first question of each verdict
        return [self._judged(s, judgement) for s, judgement in self._witnesses.settle(opened, judge, snapshot)]

    def ask_again(self, topic: TopicPlan, plan: SubscriptionPlan, rows: Sequence[Candidate]) -> list[Suspect]:
        """Asks again for the missing evidence of closed rows: the commit of a REJECTED row, the effect of any other
        row. Keeps the order."""
        suspects = [self._opened(suspect_of(topic, plan, row)) for row in rows]
        rejected = [s for s, row in zip(suspects, rows, strict=True) if row.verdict is Verdict.REJECTED]
        others = [s for s, row in zip(suspects, rows, strict=True) if row.verdict is not Verdict.REJECTED]
        is_of_business = topic.evidence.asks_business
        ask_commits = self._witnesses.ask_business if is_of_business else self._witnesses.ask_outboxes
        asked = [*ask_commits(rejected), *self._witnesses.ask_effects(others)]
        answered = {suspect.unique_key: suspect for suspect in asked}
        return [answered[row.unique_key] for row in rows]

    def review_by_halves(self, suspects: Sequence[Suspect], snapshot: BrokerSnapshot) -> list[JudgedKey]:
        """Returns verdicts by halves for keys without a committed row, in the same order. A key without a half costs
        one look-up, any other key at most three."""
        asked = [replace(suspect, now_ms=snapshot.now_ms) for suspect in suspects]
        return [self._judged(one, said) for one, said in self._witnesses.settle(asked, review_half, snapshot)]

    def _opened(self, suspect: Suspect) -> Suspect:
        """Returns the suspect with the configured witnesses."""
        plan, has_inbox = suspect.plan, self._inbox.is_configured(suspect.plan.subscription)
        return replace(
            suspect,
            skew_margin_seconds=self.rules.skew_margin_seconds,
            retention_seconds=self.rules.retention_seconds,
            of_group={plan.group: GroupAnswers.of(plan, has_inbox=has_inbox)},
        )

    def _repairs_of(self, topic: TopicPlan, unique_keys: Sequence[str]) -> Mapping[str, Sequence[Repair]]:
        return self._repairs.of_keys(topic.environment, topic.topic, unique_keys) if unique_keys else {}

    def _judged(self, suspect: Suspect, judgement: Judgement) -> JudgedKey:
        attempts = suspect.known.attempts if suspect.known is not None else 0
        grace = suspect.plan.grace_period_seconds
        evidence = evidence_of(suspect, self.english, reason=judgement.reason, undecided_by=judgement.undecided_by)
        by, since_ms = undecided_by(evidence)
        return JudgedKey(
            suspect=suspect,
            entry=VerdictEntry(
                unique_key=suspect.unique_key,
                verdict=judgement.verdict,
                evidence=evidence
                | taken_back(suspect, self.english, judgement.verdict)
                | handed_out_before(suspect, judgement.verdict, by),
                first_seen_ms=suspect.first_seen_ms,
                state=state_of(judgement.verdict),
                wait_seconds=wait_seconds(
                    judgement, attempts=attempts, grace_period_seconds=grace, was_lost=suspect.was_lost
                ),
                ask_again_seconds=ask_again_seconds(judgement, suspect),
                undecided_by=by,
                undecided_since_ms=None if by is None else (suspect.first_seen_ms if since_ms is None else since_ms),
            ),
        )
