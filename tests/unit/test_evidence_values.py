"""Values of evidence: an unknown stays one through every conversion, and says who did not answer."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import OutboxState
from reconciler.policy.evidence import Lookup, Presence, WitnessAnswer
from reconciler.words import said
from tests.simulation.outbox_table import TableRow


def test_a_witness_that_did_not_answer_is_neither_found_nor_absent_and_is_named() -> None:
    lookup: Lookup[int] = Lookup.unknown("broker-a", "timed out")
    assert (lookup.is_unknown, lookup.is_found, lookup.is_absent) == (True, False, False)
    assert lookup.records == ()
    assert said(lookup.reason) == "broker-a: UNKNOWN (timed out)"


@pytest.mark.parametrize("presence", list(Presence))
def test_conversion_of_records_changes_no_answer(presence: Presence) -> None:
    answers = (
        WitnessAnswer(witness="broker-a", presence=presence, detail="2 hits"),
        WitnessAnswer(witness="broker-b", presence=Presence.ABSENT, detail="code 22"),
    )
    lookup = Lookup(presence=presence, records=(1, 2) if presence is Presence.FOUND else (), answers=answers)
    converted = lookup.map(str)
    assert converted.records == (("1", "2") if presence is Presence.FOUND else ())
    assert (converted.presence, converted.answers) == (presence, answers)
    assert said(converted.reason) == f"broker-a: {presence} (2 hits); broker-b: ABSENT (code 22)"


@pytest.mark.parametrize("state", list(OutboxState))
def test_a_tombstone_is_the_only_row_that_is_no_commit(state: OutboxState) -> None:
    row = TableRow(
        unique_key="7F00000100002A9F0000000000000090",
        topic="ORDERS",
        producer_group="orders",
        tag=None,
        content_digest=None,
        state=state,
        created_at_ms=1,
    )
    assert (row.seen.commit is None) == (state is OutboxState.ROLLED_BACK)
    assert row.seen.message.unique_key == row.unique_key
