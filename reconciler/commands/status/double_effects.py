"""What `status` says about messages that took effect in two inboxes, or after a person had dismissed the message."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.stored_facts import is_double_effect
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.ledger import Candidate
from reconciler.telling.ports.paging import LedgerFilter, all_rows
from reconciler.telling.ports.reports import LedgerReports, VerdictCount

TWO_EFFECTS = Code("status.two-effects", subscription=Field.NAME, number=Field.NUMBER, unique_key=Field.NAME)
EFFECT_AFTER_DISMISSAL = Code(
    "status.effect-after-dismissal", subscription=Field.NAME, number=Field.NUMBER, unique_key=Field.NAME
)

#: Maximum number of collisions that are looked at. Collisions are rare, and each collision waits for a person.
COLLISIONS_ASKED = 1_000


def double_effects(reports: LedgerReports, verdicts: Iterable[VerdictCount], environment: str) -> list[Fact]:
    """Returns one line for each subscription and kind of double effect."""
    if not any(v.state is CandidateState.QUARANTINED and v.verdict is Verdict.COLLISION for v in verdicts):
        return []
    only = LedgerFilter(candidate_state=CandidateState.QUARANTINED, verdict=Verdict.COLLISION)
    doubled: dict[Subscription, list[Candidate]] = {}
    late: dict[Subscription, list[Candidate]] = {}
    for row in all_rows(partial(reports.candidates, environment, only=only), limit=COLLISIONS_ASKED):
        if row.took_effect_dismissed:
            late.setdefault(row.subscription, []).append(row)
        elif is_double_effect(row.evidence):
            doubled.setdefault(row.subscription, []).append(row)
    return [
        *(
            TWO_EFFECTS(subscription=str(subscription), number=len(rows), unique_key=rows[0].unique_key)
            for subscription, rows in doubled.items()
        ),
        *(
            EFFECT_AFTER_DISMISSAL(subscription=str(subscription), number=len(rows), unique_key=rows[0].unique_key)
            for subscription, rows in late.items()
        ),
    ]
