"""A person has seen to a key that was given up: it leaves the list of what needs a person, its verdict stays."""

from __future__ import annotations

from reconciler.contract.row_rules import bounded_text
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState
from reconciler.plan import TopicPlan
from reconciler.ports import Candidate, Candidates, Repairs, Verification


class Dismissals:
    """Closes QUARANTINED candidates and FAILED repairs by hand; nothing is sent. Raises DatabaseAway."""

    def __init__(self, *, candidates: Candidates, repairs: Repairs) -> None:
        self._candidates = candidates
        self._repairs = repairs

    def dismiss(self, topic: TopicPlan, unique_key: str, *, group: str | None, by: str, reason: str) -> dict[str, str]:
        """Group -> what became of its row: "dismissed", or the state in which it was left. Empty: no row of the key.

        `group`: only this one. A repair for every group is closed with the last group that needs a person.
        """
        told: dict[str, str] = {}
        needed = False
        for plan in topic.subscriptions:
            row = self._candidates.read(plan.subscription, [unique_key]).get(unique_key)
            if row is None:
                continue
            is_meant = group in (None, plan.group)
            if is_meant and row.state is CandidateState.QUARANTINED:
                self._close(row, by=by, reason=reason)
                told[plan.group] = "dismissed"
                continue
            needed = needed or row.state is not CandidateState.SETTLED
            if is_meant:
                told[plan.group] = str(row.state)
        if told:
            scopes = {name for name, state in told.items() if state != CandidateState.OPEN}
            for scope in self._close_repairs(
                topic, unique_key, scopes if needed else scopes | {EVERY_GROUP}, f"dismissed by {by}: {reason}"
            ):
                told |= {name: "dismissed" for name in told if scope in (name, EVERY_GROUP)}
        return told

    def _close(self, row: Candidate, *, by: str, reason: str) -> None:
        """The verdict and its evidence stay; SETTLED is for good."""
        dismissed = Verification(
            unique_key=row.unique_key,
            verdict=row.verdict,
            evidence=dict(row.evidence) | {"dismissed_by": by, "dismissed_because": bounded_text(reason)},
            first_seen_ms=row.first_seen_ms,
            state=CandidateState.SETTLED,
            wait_seconds=0.0,
        )
        self._candidates.record(Shard(subscription=row.subscription, number=row.shard), [dismissed])

    def _close_repairs(self, topic: TopicPlan, unique_key: str, scopes: set[str], answer: str) -> list[str]:
        rows = self._repairs.read(topic.environment, topic.topic, [unique_key]).get(unique_key, ())
        return [
            row.scope
            for row in rows
            if row.scope in scopes and row.state is RepairState.FAILED and self._repairs.dismiss(row, answer=answer)
        ]
