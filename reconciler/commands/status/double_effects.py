"""What status says about messages that took effect in two inboxes of one group."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.inquiry.delivery import DOUBLE_EFFECT
from reconciler.policy.ports import Candidate, LedgerFilter, LedgerReports, VerdictCount, all_rows

#: Collisions that are looked at: they are rare, and each of them waits for a person.
COLLISIONS_ASKED = 1_000


def double_effects(reports: LedgerReports, verdicts: Iterable[VerdictCount], environment: str) -> list[str]:
    """One line a subscription that has quarantined keys with an effect in two inboxes."""
    if not any(v.state is CandidateState.QUARANTINED and v.verdict is Verdict.COLLISION for v in verdicts):
        return []
    only = LedgerFilter(candidate_state=CandidateState.QUARANTINED, verdict=Verdict.COLLISION)
    found: dict[Subscription, list[Candidate]] = {}
    for row in all_rows(partial(reports.candidates, environment, only=only), limit=COLLISIONS_ASKED):
        if str(row.evidence.get("reason", "")).startswith(DOUBLE_EFFECT):
            found.setdefault(row.subscription, []).append(row)
    return [
        f"{subscription}: {len(rows)} keys took effect in two inboxes, for example {rows[0].unique_key}: undo one "
        "effect, delete its inbox row, dismiss the key; is the handler's database a function of the message?"
        for subscription, rows in found.items()
    ]
