"""An operator dismisses a key that was given up: it leaves the list of open work, its verdict stays."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reconciler.contract.row_rules import DISMISSED_BY, FINISHED_REPAIRS, bounded_text
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports import Candidate, Candidates, Repair, Repairs, Verification

#: What became of a group's row; else its state, or that of the repair that is under way.
DISMISSED = "dismissed"
CLOSED = frozenset({DISMISSED, str(CandidateState.SETTLED)})


class Dismissals:
    """Closes QUARANTINED candidates and FAILED repairs by hand, and open rows of subscriptions that are not
    configured any more, which no round closes. Raises DatabaseAway."""

    def __init__(self, *, candidates: Candidates, repairs: Repairs, configured: Collection[Subscription]) -> None:
        self._candidates = candidates
        self._repairs = repairs
        self._configured = frozenset(configured)

    def dismiss(self, found: Sequence[Candidate], *, group: str | None, by: str, reason: str) -> dict[str, str]:
        """Group -> one of CLOSED, or what the reconciler still works on: nothing of such a group is changed.

        `found`: the candidates of one key and topic, of all groups. `group`: only this one. A repair for every group is
        closed with the last group that needs a person.
        """
        rows = {row.subscription.group: row for row in found}
        if not rows:
            return {}
        topic, unique_key = found[0].subscription, found[0].unique_key
        repairs = self._repairs.of_keys(topic.environment, topic.topic, [unique_key]).get(unique_key, ())
        outcomes = {
            name: self._under_way(row, repairs) or DISMISSED for name, row in rows.items() if group in (None, name)
        }
        for name in [name for name, outcome in outcomes.items() if outcome == DISMISSED]:
            if rows[name].state is not CandidateState.SETTLED:
                self._close(rows[name], by=by, reason=reason)
            elif not self._failed(repairs, {name, EVERY_GROUP}):
                outcomes[name] = str(CandidateState.SETTLED)
        done = {name for name, outcome in outcomes.items() if outcome in CLOSED}
        others = [row for name, row in rows.items() if name not in done]
        if done and all(row.state is CandidateState.SETTLED for row in others):
            done.add(EVERY_GROUP)
        for repair in self._failed(repairs, done):
            self._repairs.dismiss(repair, answer=f"{DISMISSED_BY}{by}: {reason}")
        return outcomes

    def _under_way(self, row: Candidate, repairs: Sequence[Repair]) -> str | None:
        """Why the group's effect may still come: its row is open, or a repair that reaches it is not finished."""
        if row.subscription not in self._configured:
            return None
        if row.state is CandidateState.OPEN:
            return str(CandidateState.OPEN)
        for repair in repairs:
            if repair.scope in (EVERY_GROUP, row.subscription.group) and repair.state not in FINISHED_REPAIRS:
                return f"repair is {repair.state}"
        return None

    @staticmethod
    def _failed(repairs: Sequence[Repair], scopes: set[str]) -> list[Repair]:
        return [repair for repair in repairs if repair.scope in scopes and repair.state is RepairState.FAILED]

    def _close(self, row: Candidate, *, by: str, reason: str) -> None:
        """The verdict and its evidence stay; SETTLED is for good. One that was open was given up only now."""
        outcomes = {"dismissed_by": by, "dismissed_because": bounded_text(reason)}
        was_open = row.state is CandidateState.OPEN
        dismissed = Verification(
            unique_key=row.unique_key,
            verdict=Verdict.QUARANTINED if was_open else row.verdict,
            evidence=dict(row.evidence) | outcomes | ({"verdict_before": str(row.verdict)} if was_open else {}),
            first_seen_ms=row.first_seen_ms,
            state=CandidateState.SETTLED,
            wait_seconds=0.0,
        )
        self._candidates.record(Shard(subscription=row.subscription, number=row.shard), [dismissed])
