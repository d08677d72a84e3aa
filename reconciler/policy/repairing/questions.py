"""What the repairs of a topic ask brokers, inboxes and the ledger in one pass, about the outbox row's message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from reconciler.contract.tables import EVERY_GROUP
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import QueuePosition, StoredMessage
from reconciler.policy.judging.delivery import group_position, of_row, own_halves, reach, row_of
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports import BrokerEvidence, Horizon, InboxEvidence, Repairs
from reconciler.policy.repairing.case import SEND_MARGIN_MS, Ask, Case


class RepairQuestions:
    """Answers of one pass. The groups' positions are read first, the horizon is proved second, both once."""

    def __init__(self, topic: TopicPlan, *, brokers: BrokerEvidence, inbox: InboxEvidence, repairs: Repairs) -> None:
        self._topic = topic
        self._brokers = brokers
        self._inbox = inbox
        self._repairs = repairs
        self._horizon: Horizon | None = None
        self._positions: dict[str, Sequence[QueuePosition] | None] = {}

    def prepare(self, asks: Iterable[Ask]) -> None:
        """Asks what every look-up of the pass rests on, before several of them begin at once."""
        if any(ask is not Ask.ROWS for ask in asks):
            self._proved_horizon()

    def answer(self, case: Case, ask: Ask) -> Case:
        """The case with one more answer. After prepare() several threads may ask."""
        topic, key = self._topic.topic, case.repair.unique_key
        if ask is Ask.ROWS:
            rows = self._repairs.read(case.repair.environment, topic, [key]).get(key, ())
            return replace(case, rows=[row for row in rows if row.scope != EVERY_GROUP])
        horizon = self._proved_horizon()
        sent_at_ms = case.repair.sent_at_ms
        not_before_ms = case.repair.created_at_ms if sent_at_ms is None else sent_at_ms + SEND_MARGIN_MS
        match ask:
            case Ask.COPIES:
                copies = self._brokers.committed_copies(topic, key, horizon=horizon, not_before_ms=not_before_ms)
                return replace(case, copies=of_row(copies, row_of(case.outbox)))
            case Ask.HALVES:
                # Halves are older than the announcement: the horizon of this pass covers them in any case.
                halves = self._brokers.half_copies(
                    topic, key, horizon=horizon, not_before_ms=case.repair.created_at_ms, outbox=row_of(case.outbox)
                )
                return replace(case, halves=own_halves(halves, topic=self._topic, row=row_of(case.outbox)))
            case Ask.PARKED:
                parked = self._brokers.parked_copies(
                    topic, key, horizon=horizon, not_before_ms=case.repair.created_at_ms
                )
                return replace(case, parked=own_halves(parked, topic=self._topic, row=row_of(case.outbox)))
            case _:
                return replace(case, group_positions=self._group_positions(case, horizon))

    def _proved_horizon(self) -> Horizon:
        if self._horizon is None:
            for plan in self._topic.subscriptions:
                self._positions[plan.group] = self._brokers.positions(plan.subscription)
            self._horizon = self._brokers.horizon(self._topic.topic)
        return self._horizon

    def _group_positions(self, case: Case, horizon: Horizon) -> Mapping[str, Verdict]:
        copies = case.copies.records if case.copies is not None else ()
        return {plan.group: self._group_position(case, plan, copies, horizon) for plan in case.missing}

    def _group_position(
        self, case: Case, plan: SubscriptionPlan, copies: Sequence[StoredMessage], horizon: Horizon
    ) -> Verdict:
        key, positions = case.repair.unique_key, self._positions[plan.group]
        short_of = reach(positions, copies)
        if short_of is not None:
            return short_of
        # Once more, after the positions: an effect is committed before its offset.
        again = self._inbox.read(plan.subscription, [key]).get(key)
        if again is None or again.is_unknown:
            return Verdict.UNKNOWN
        if again.is_found:
            return Verdict.CONSUMED
        copies_of = self._brokers.group_copies(plan.subscription, key, horizon=horizon)
        return group_position(
            positions, {name: of_row(found, row_of(case.outbox)) for name, found in copies_of.items()}
        )
