"""Facts: a code takes the fields that it was declared with, and no others; a fact is a value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.contract.facts import Code, Field

LATE = Code("test.late", group=Field.NAME, at_ms=Field.TIME)
EVERY = Code(
    "test.every",
    name=Field.NAME,
    text=Field.TEXT,
    number=Field.NUMBER,
    count=Field.COUNT,
    at_ms=Field.TIME,
    names=Field.NAMES,
    fact=Field.FACT,
    facts=Field.FACTS,
)
CAUSE = LATE(group="billing", at_ms=5)
FITTING: dict[str, Any] = {
    "name": "ORDERS",
    "text": "gone",
    "number": 0,
    "count": 3,
    "at_ms": 1,
    "names": ("a", "b"),
    "fact": CAUSE,
    "facts": (CAUSE, CAUSE),
}


@pytest.mark.parametrize("values", [{}, {"group": "billing"}, {"group": "billing", "at_ms": 5, "why": "gone"}])
def test_a_field_that_is_missing_or_unknown_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"test\.late"):
        LATE(**values)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", None),
        ("name", 5),
        ("text", ValueError("gone")),
        ("number", "5"),
        ("number", True),
        ("count", True),
        ("at_ms", None),
        ("names", "ab"),
        ("names", ["a", "b"]),
        ("names", ("a", 5)),
        ("fact", "billing is late"),
        ("fact", (CAUSE,)),
        ("facts", CAUSE),
        ("facts", [CAUSE]),
        ("facts", (CAUSE, "billing is late")),
    ],
)
def test_a_value_of_another_kind_is_refused(field: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"{field}: {EVERY.fields[field]}"):
        EVERY(**FITTING | {field: value})


def test_lists_may_be_empty() -> None:
    assert EVERY(**FITTING | {"names": (), "facts": ()}).fields["names"] == ()


def test_in_json_a_fact_is_its_code_and_its_fields_and_so_are_the_facts_within_it() -> None:
    within = {"code": "test.late", "fields": {"group": "billing", "at_ms": 5}}
    fields = FITTING | {"names": ["a", "b"], "fact": within, "facts": [within, within]}
    document = EVERY(**FITTING).as_dict()
    assert document == {"code": "test.every", "fields": fields}
    assert json.loads(json.dumps(document)) == document


def test_facts_of_one_code_and_the_same_values_are_one_value_in_whatever_order_they_were_named() -> None:
    assert LATE(at_ms=5, group="billing") == CAUSE
    assert list(LATE(at_ms=5, group="billing").fields) == ["group", "at_ms"], "the order of the declaration"
    assert len({EVERY(**FITTING), EVERY(**dict(reversed(FITTING.items())))}) == 1
    assert LATE(group="billing", at_ms=6) != CAUSE
    assert Code("test.later", group=Field.NAME, at_ms=Field.TIME)(group="billing", at_ms=5) != CAUSE
