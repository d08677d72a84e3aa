"""Facts beside texts in rows: whoever knows no code reads the text, and one that was written over has no code."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest

from reconciler.contract.answers import ANSWER, OUTBOX_ROW
from reconciler.contract.facts import Fact, Field
from reconciler.contract.reasons import AS_WRITTEN, DAMAGED, DOUBLE_EFFECT, NO_OWN_COPY, OTHER_COPIES, OTHER_TAG
from reconciler.contract.stored_facts import (
    CODES,
    TEXT_CHARACTERS_MAX,
    coded,
    fact_in,
    is_double_effect,
    reason_in,
    with_texts,
)
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


def test_a_fact_of_every_code_comes_back() -> None:
    of_kind: dict[Field, Any] = dict.fromkeys(Field, "in words") | {
        Field.FACT: AS_WRITTEN(text="in words"),
        Field.FACTS: (AS_WRITTEN(text="a"), WHY),
        Field.NAMES: ("long name", "b"),
        Field.EXACT_TIMES: (1, 2_000),
        **dict.fromkeys((Field.NUMBER, Field.COUNT, Field.TIME, Field.EXACT_TIME), 3_000),
    }
    facts = [code(**{name: of_kind[kind] for name, kind in code.fields.items()}) for code in CODES.values()]
    assert [fact_in(stored({"reason": fact}), "reason") for fact in facts] == facts


@pytest.mark.parametrize("is_of_before", [True, False])
def test_json_has_the_names_of_fields_whatever_the_row_has(*, is_of_before: bool) -> None:
    row = as_before(WHY) if is_of_before else stored({"reason": WHY})
    named = {"reason": said(WHY), "facts": {"reason": WHY.as_dict()}}
    assert coded({"inbox": row, "attempts": 3, **row}) == {"inbox": named, "attempts": 3, **named}
    assert coded(row | {"reason": "another"})["facts"] == {}


def as_before(fact: Fact) -> dict[str, Any]:
    """A row in which the fact is an object with the names of its fields."""
    text = said(fact)
    return {"reason": text, "facts": {"reason": {**fact.as_dict(), "crc32": crc32(text.encode())}}}


@pytest.mark.parametrize("fact", [WHY, DOUBLE_EFFECT(applied=(1, 2_000))], ids=lambda fact: fact.code.name)
def test_a_fact_with_the_names_of_its_fields_comes_back_from_rows_of_before(fact: Fact) -> None:
    row = as_before(fact)
    assert (fact_in(row, "reason"), is_double_effect(row)) == (fact, fact.code is DOUBLE_EFFECT)
    assert fact_in(row | {"reason": "another"}, "reason") is None


@pytest.mark.parametrize(
    "name", ["db", "postgresql://db.example/billing", "数据库 billing of this house", "\udcff broken"]
)
def test_what_the_text_has_is_not_written_twice(name: str) -> None:
    fact = ANSWER(witness=name, presence="FOUND", detail=OUTBOX_ROW(state="ANNOUNCED"))
    row = stored({"detail": fact})
    assert fact_in(row, "detail") == fact
    assert json.dumps(row).count(json.dumps(name)[1:-1]) == (2 if len(name) < 8 else 1)
    assert fact_in(row | {"detail": row["detail"] + "."}, "detail") is None, "its places are of another text"


@pytest.mark.parametrize(
    "changed",
    [
        lambda code, digest, *values: ["reason.of-a-newer-release", digest, *values],
        lambda code, digest, *values: [[], digest, *values],
        lambda code, digest, *values: [code, digest],
        lambda code, digest, *values: [code, digest, *values, "more"],
        lambda code, digest, *values: [code, digest, ["reason.of-a-newer-release"]],
        lambda code, digest, *values: [code, digest, "text"],
        lambda code, digest, *values: [code, digest, [0, 4]],
        lambda code, digest, *values: [code, digest, ["reason.other-half", ["reason.other-tag", 7, "b"]]],
        lambda code, digest, *values: [code, digest, ["reason.other-half", ["reason.other-tag", ["0", 4], "b"]]],
        lambda code, digest, *values: [code, digest + 1, *values],
        lambda code, digest, *values: [code, str(digest), *values],
        lambda code, digest, *values: [code],
        lambda code, digest, *values: [],
        lambda code, digest, *values: code,
    ],
)
def test_a_list_that_this_release_does_not_know_is_shown_by_its_text(changed: Any) -> None:
    row = stored({"reason": WHY})
    row["facts"]["reason"] = changed(*row["facts"]["reason"])
    assert fact_in(row, "reason") is None
    assert told(row, "zh") == {"reason": said(WHY)}


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
    row = as_before(WHY)
    row["facts"]["reason"] |= changed
    assert fact_in(row, "reason") is None
    assert told(row, "zh") == {"reason": said(WHY)}


@pytest.mark.parametrize("facts", [None, 7, [], {"reason": 7}, {"reason": {"crc32": []}}, {"reason": [[], []]}])
def test_facts_of_another_shape_are_none(facts: object) -> None:
    assert reason_in({"reason": "why", "facts": facts}) == AS_WRITTEN(text="why")


def test_a_double_effect_is_known_by_its_code_also_where_its_fields_are_new() -> None:
    before, row = as_before(DOUBLE_EFFECT(applied=(1, 2))), stored({"reason": DOUBLE_EFFECT(applied=(1, 2))})
    before["facts"]["reason"]["fields"]["inboxes"] = ["a"]
    row["facts"]["reason"].append(["a"])
    assert is_double_effect(before)
    assert is_double_effect(row)
    assert (fact_in(before, "reason"), fact_in(row, "reason")) == (None, None)


def test_texts_from_outside_are_bounded() -> None:
    row = stored({"reason": DAMAGED(looks=1, damage=as_foreign("x" * 5_000))})
    assert len(row["reason"]) == TEXT_CHARACTERS_MAX
    assert reason_in(row) == DAMAGED(looks=1, damage=as_foreign("x" * TEXT_CHARACTERS_MAX))
