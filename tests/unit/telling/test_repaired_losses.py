"""Which settled losses count as repaired, in the console and in the metrics."""

from __future__ import annotations

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.telling.ports.reports import VerdictCount

BILLING = Subscription(environment="live", topic="ORDERS", group="billing")


@pytest.mark.parametrize(
    ("verdict", "loss_verdict", "counts"),
    [
        (Verdict.CONSUMED, Verdict.LOST_CONFIRM, True),
        (Verdict.DELIVERED, Verdict.LOST_CONFIRM, True),  # a group without an inbox
        (Verdict.DELIVERED, None, False),
        (Verdict.LOST_CONFIRM, Verdict.LOST_CONFIRM, False),  # a person has dismissed it
    ],
)
def test_a_loss_that_arrived_counts_as_repaired_with_and_without_an_inbox(
    verdict: Verdict, loss_verdict: Verdict | None, *, counts: bool
) -> None:
    of = VerdictCount(
        subscription=BILLING,
        state=CandidateState.SETTLED,
        verdict=verdict,
        loss_verdict=loss_verdict,
        count=1,
        oldest_ms=1,
    )
    assert of.is_repaired_loss is counts
