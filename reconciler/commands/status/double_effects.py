"""What status says about messages that took effect twice: in two inboxes, or after a person had dismissed them."""

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
    """One line a subscription and kind."""
    if not any(v.state is CandidateState.QUARANTINED and v.verdict is Verdict.COLLISION for v in verdicts):
        return []
    only = LedgerFilter(candidate_state=CandidateState.QUARANTINED, verdict=Verdict.COLLISION)
    doubled: dict[Subscription, list[Candidate]] = {}
    late: dict[Subscription, list[Candidate]] = {}
    for row in all_rows(partial(reports.candidates, environment, only=only), limit=COLLISIONS_ASKED):
        if row.took_effect_dismissed:
            late.setdefault(row.subscription, []).append(row)
        elif str(row.evidence.get("reason", "")).startswith(DOUBLE_EFFECT):
            doubled.setdefault(row.subscription, []).append(row)
    return [
        *(
            f"{subscription}: {len(rows)} keys took effect in two inboxes, for example {rows[0].unique_key}: undo one "
            "effect, delete its inbox row, dismiss the key; is the handler's database a function of the message?"
            for subscription, rows in doubled.items()
        ),
        *(
            f"{subscription}: {len(rows)} keys took effect after a person had dismissed them, for example "
            f"{rows[0].unique_key}: what was done by hand was done twice; undo one of the two, keep the inbox row, "
            "dismiss the key again"
            for subscription, rows in late.items()
        ),
    ]
