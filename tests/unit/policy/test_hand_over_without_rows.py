"""A repair on the hand-over rung whose rows are gone (deleted by hand, or never written before a crash)."""

from __future__ import annotations

from dataclasses import replace

from reconciler.contract.kept_facts import WAITS_FOR_PUT_BACK
from reconciler.contract.tables import RepairState, Rung
from reconciler.policy.evidence import InboxRow, Lookup, Presence
from reconciler.policy.repairing.case import RepairStep
from reconciler.policy.repairing.ladder import decide
from tests.unit.policy.test_repair_decisions import OPEN_ROW, case


def test_a_seen_effect_without_hand_over_rows_is_finished_like_any_other() -> None:
    at_ms = OPEN_ROW.created_at_ms
    sent = replace(OPEN_ROW, state=RepairState.SENT, rung=Rung.HAND_OVER, attempts=1, sent_at_ms=at_ms)
    row = InboxRow(
        group="billing",
        unique_key=sent.unique_key,
        topic=sent.topic,
        content_digest=None,
        source="consumer",
        applied_at_ms=1,
    )
    effect = Lookup(presence=Presence.FOUND, records=(row,))
    known = case(inboxes={"billing": effect, "shipping": effect}, now_ms=at_ms, hand_overs=())
    decision = decide(replace(known, repair=sent))
    assert isinstance(decision, RepairStep)
    assert decision.reason == WAITS_FOR_PUT_BACK()
