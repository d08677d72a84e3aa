"""Single keys that a person names in a command: they are judged and repaired now, under the brakes of the rounds."""

from __future__ import annotations

from reconciler.clock import Clock
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import ChangedMeanwhile
from reconciler.policy.judging.judge import Judge, JudgedKey
from reconciler.policy.judging.suspect import Suspect
from reconciler.policy.known_plans import KnownPlans
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS, OutboxEvidence
from reconciler.policy.ports.ledger import Candidate, Candidates, Repairs
from reconciler.policy.repairing.case import HandOverByHand, RepairOutcome
from reconciler.policy.repairing.repair import WITHDRAWN, Repairer
from reconciler.policy.repairing.rungs import RUNGS, first_rung
from reconciler.policy.verdict_writer import VerdictWriter


class KeysByHand:
    """Judges and repairs single keys. Used by one thread only."""

    def __init__(
        self,
        plans: KnownPlans,
        *,
        judge: Judge,
        repairer: Repairer,
        writer: VerdictWriter,
        candidates: Candidates,
        repairs: Repairs,
        outbox: OutboxEvidence,
        clock: Clock,
    ) -> None:
        self._plans = plans
        self._judge = judge
        self._repairer = repairer
        self._writer = writer
        self._candidates = candidates
        self._repairs = repairs
        self._outbox = outbox
        self._clock = clock

    def judge_one(self, subscription: Subscription, unique_key: str, *, dry_run: bool = False) -> JudgedKey:
        """Judges one key now, even while the gate is shut. Writes the verdict, except in a dry run."""
        topic, plan = self._plans.of(subscription)
        known = self._candidates.of_keys(subscription, [unique_key]).get(unique_key)
        suspect = Suspect(
            unique_key=unique_key,
            topic=topic,
            plans=(plan,),
            first_seen_ms=known.first_seen_ms if known is not None else self._committed_at_ms(topic, unique_key),
            shard=topic.shard_of(unique_key),  # the stored row may belong to a queue that no longer exists
            known=known,
        )
        began_seconds = self._clock.monotonic_seconds()
        self._judge.recall_brokers(topic)
        judged = self._judge.judge_keys(topic, [suspect], self._judge.snapshot(topic, plan))
        if not dry_run:
            self._writer.write(topic, plan, judged, began_seconds)
        return judged[0]

    def repair_one(
        self, subscription: Subscription, unique_key: str, *, dry_run: bool = False
    ) -> tuple[JudgedKey, RepairOutcome | None]:
        """Judges and repairs one key with the same brakes. A FAILED repair is tried again: a hand-over is handed over
        again, and every other repair is sent again from the first rung of the ladder.

        None: there is nothing to repair. A dry run changes nothing and returns the next step. If a dismissal or a
        repair has changed the key since it was read, nothing is done and ChangedMeanwhile is raised. For a key that was
        dismissed before, the verdict is returned.
        """
        topic, _plan = self._plans.of(subscription)
        known = self._candidates.of_keys(subscription, [unique_key]).get(unique_key)
        if known is not None and known.is_dismissed:
            return self.judge_one(subscription, unique_key, dry_run=True), None
        if not dry_run:
            self._another_chance(topic, subscription, unique_key, known)
        judged = self.judge_one(subscription, unique_key, dry_run=dry_run)
        if not dry_run and judged.entry.verdict is Verdict.CONSUMED:
            self._end_failed_hand_over(topic, subscription, unique_key)
        if not dry_run and (known is None or known.loss_verdict is None):  # proved after its repair was closed
            now = self._candidates.of_keys(subscription, [unique_key]).get(unique_key)
            self._another_chance(topic, subscription, unique_key, now)
        return judged, self._repairer.repair_one(topic, unique_key, dry_run=dry_run)

    def to_hand_over(self, subscription: Subscription, unique_key: str, *, first_seen_ms: int) -> HandOverByHand:
        """Returns the message that a person may hand over to the group's replay worker. Writes nothing."""
        topic, plan = self._plans.of(subscription)
        return self._repairer.by_hand(topic, plan, unique_key, first_seen_ms=first_seen_ms)

    def _another_chance(
        self, topic: TopicPlan, subscription: Subscription, unique_key: str, known: Candidate | None
    ) -> None:
        if known is None or known.loss_verdict is None:
            return
        is_consumed = known.verdict is Verdict.CONSUMED
        rows = self._repairs.of_keys(topic.environment, topic.topic, [unique_key]).get(unique_key, ())
        as_read = True
        for row in rows:
            # A dismissed row was dismissed for other groups, because this group is not dismissed.
            if row.scope != EVERY_GROUP or not (row.state is RepairState.FAILED or row.is_dismissed):
                continue
            if RUNGS[row.rung].is_per_group and row.rung in topic.repair_order:
                as_read &= self._repairs.reopen(row, rung=row.rung)
            elif not is_consumed:
                as_read &= self._repairs.reopen(row, rung=first_rung(topic.repair_order, known.loss_verdict))
        if not is_consumed and known.state is not CandidateState.OPEN:
            as_read &= self._candidates.reopen(known)
        if not as_read:
            now = self._candidates.of_keys(subscription, [unique_key]).get(unique_key)
            told = {} if now is None else {"state": str(now.state), "verdict": str(now.verdict)}
            raise ChangedMeanwhile(f"{unique_key} for {subscription.group}", now=told)

    def _end_failed_hand_over(self, topic: TopicPlan, subscription: Subscription, unique_key: str) -> None:
        """Closes the row of a FAILED hand-over whose effect came another way, so that no worker runs the handler."""
        rows = self._repairs.of_keys(topic.environment, topic.topic, [unique_key]).get(unique_key, ())
        for row in rows:
            if row.scope == subscription.group and row.state is RepairState.FAILED:
                self._repairs.dismiss(row, answer=WITHDRAWN)

    def _committed_at_ms(self, topic: TopicPlan, unique_key: str) -> int:
        """Returns when the outbox row was written. 0: that is unknown, so any proved index is late enough."""
        lookup = self._outbox.look_up(topic.topic, {unique_key: WHENEVER_COMMITTED_MS}).get(unique_key)
        return lookup.records[0].message.created_at_ms if lookup is not None and lookup.is_found else 0
