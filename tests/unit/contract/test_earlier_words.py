"""The words that 0.2.0 decides by: read in one file, and written to the letter."""

from __future__ import annotations

import pytest

from reconciler.contract.earlier_words import BEGINS_DISMISSED, BEGINS_DOUBLE_EFFECT, answer_in
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import REPAIR_DISMISSED
from reconciler.contract.reasons import DOUBLE_EFFECT
from reconciler.contract.stored_facts import begins_column, column_of, fact_of_column
from reconciler.words import said

DISMISSED = REPAIR_DISMISSED(by="web:anna", reason="paid: by hand")


def test_what_is_written_begins_with_the_words_that_0_2_0_decides_by() -> None:
    assert said(DISMISSED) == f"{BEGINS_DISMISSED}web:anna: paid: by hand"
    assert said(DOUBLE_EFFECT(applied=(1, 2))).startswith(BEGINS_DOUBLE_EFFECT)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("dismissed by web:anna: paid: by hand", DISMISSED),
        ("dismissed by anna", REPAIR_DISMISSED(by="anna", reason="")),
        ("Dismissed by anna: paid", None),
        ("the dismissal was taken back by anna: no", None),
        ("the effect is there", None),
        ("", None),
    ],
)
def test_a_row_without_a_fact_has_it_by_these_words_alone(text: str, fact: Fact | None) -> None:
    assert answer_in(text) == fact


@pytest.mark.parametrize(
    ("kept", "text", "fact"),
    [
        (column_of(DISMISSED, "x"), "x", DISMISSED),
        (column_of(DISMISSED, "x"), "y", None),
        (column_of(DISMISSED, "x").replace("repair.dismissed", "repair.of-tomorrow"), "x", None),
        (column_of(DISMISSED, "x").replace('"reason"', '"why"'), "x", None),
        ("[1]", "x", None),
        ("no JSON", "x", None),
        (b"\xff", "x", None),
        (None, "x", None),
    ],
)
def test_a_column_has_a_fact_of_its_own_text_that_this_release_knows(
    kept: object, text: str, fact: Fact | None
) -> None:
    assert fact_of_column(kept, text) == fact


def test_a_column_begins_with_the_code_by_which_retention_looks_for_it() -> None:
    assert column_of(DISMISSED, "x").startswith(begins_column(REPAIR_DISMISSED))
