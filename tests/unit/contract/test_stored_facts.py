"""Facts beside texts in rows: whoever knows no code reads the text, and one that was written over has no code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.contract.reasons import AS_WRITTEN, DAMAGED, DOUBLE_EFFECT, NO_OWN_COPY, OTHER_COPIES, OTHER_TAG
from reconciler.contract.stored_facts import TEXT_CHARACTERS_MAX, fact_in, is_double_effect, reason_in, with_texts
from reconciler.policy.evidence import as_foreign
from reconciler.words import said, told

WHY = NO_OWN_COPY(other=OTHER_COPIES["half"](why=OTHER_TAG(seen="'a'", expected="None")))


def stored(values: dict[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(with_texts(values, said)))
    return found


@pytest.mark.parametrize("fact", [WHY, DOUBLE_EFFECT(applied=(1, 2_000))], ids=lambda fact: fact.code.name)
def test_a_fact_comes_back_from_a_row_and_an_earlier_release_reads_its_sentence(fact: Any) -> None:
    row = stored({"reason": fact, "taken_back": {"reason": fact, "at_ms": 7}, "attempts": 3})
    assert row["reason"] == row["taken_back"]["reason"] == said(fact)
    assert fact_in(row, "reason") == fact_in(row["taken_back"], "reason") == reason_in(row) == fact
    assert told(row) == {"reason": said(fact), "taken_back": {"reason": said(fact), "at_ms": 7}, "attempts": 3}
    assert told(row, "zh")["taken_back"] == {"reason": said(fact, "zh"), "at_ms": 7}
    assert fact_in(row, "attempts") is None


def test_a_text_that_an_earlier_release_wrote_over_has_no_fact() -> None:
    row = stored({"reason": DOUBLE_EFFECT(applied=(1, 2))}) | {"reason": "took effect after a person had dismissed it"}
    assert (fact_in(row, "reason"), is_double_effect(row)) == (None, False)
    assert reason_in(row) == AS_WRITTEN(text=row["reason"])
    assert told(row, "zh") == {"reason": row["reason"]}


@pytest.mark.parametrize(
    "changed",
    [
        {"code": "reason.of-a-newer-release"},
        {"code": 7},
        {"fields": {"other": "text"}},
        {"fields": {"other": {"code": "reason.of-a-newer-release", "fields": {}}}},
        {"fields": {}},
        {"fields": {"other": [[{}]], "more": {"why": None}}},
        {"fields": "none"},
        {"crc32": "1"},
    ],
)
def test_what_this_release_does_not_know_is_shown_by_its_text(changed: dict[str, object]) -> None:
    row = stored({"reason": WHY})
    row["facts"]["reason"] |= changed
    assert fact_in(row, "reason") is None
    assert told(row, "zh") == {"reason": said(WHY)}


@pytest.mark.parametrize("facts", [None, 7, [], {"reason": 7}, {"reason": {"crc32": []}}])
def test_facts_of_another_shape_are_none(facts: object) -> None:
    assert reason_in({"reason": "why", "facts": facts}) == AS_WRITTEN(text="why")


def test_a_double_effect_is_known_by_its_code_also_where_its_fields_are_new() -> None:
    row = stored({"reason": DOUBLE_EFFECT(applied=(1, 2))})
    row["facts"]["reason"]["fields"]["inboxes"] = ["a"]
    assert is_double_effect(row)


def test_texts_from_outside_are_bounded() -> None:
    row = stored({"reason": DAMAGED(looks=1, damage=as_foreign("x" * 5_000))})
    assert len(row["reason"]) == TEXT_CHARACTERS_MAX
    assert reason_in(row) == DAMAGED(looks=1, damage=as_foreign("x" * TEXT_CHARACTERS_MAX))
