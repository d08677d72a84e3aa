"""What the rows of a commit query say, and what proves nothing."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from reconciler.policy.commit_query import (
    BusinessState,
    CommitQuery,
    KeyType,
    KeyValue,
    asked_apart,
    digest_of_key,
    in_statements,
    judge_rows,
    without_row,
)

NAME = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
QUERY = CommitQuery(
    topic="ORDERS",
    sql="SELECT number, status FROM orders WHERE number IN :keys",
    key="KEYS",
    key_type=KeyType.TEXT,
    committed=("PAID", 2),
    rolled_back=("CANCELLED",),
    longest_transaction_seconds=600.0,
)


def said(rows: list[tuple[object, ...]], *, asked: tuple[KeyValue, ...] = ("A", "B"), **changed: object) -> list[str]:
    answers = judge_rows(replace(QUERY, **changed), asked, rows)  # type: ignore[arg-type]
    assert set(answers) == set(asked)
    return [
        "none" if one is None else one.why.code.name if one.why is not None else one.state.value
        for one in answers.values()
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], ["none", "none"]),
        ([("A", "PAID"), ("B", "CANCELLED")], ["committed", "rolled-back"]),
        ([("A", 2)], ["committed", "none"]),
        ([("A", "PAID"), ("A", "PAID")], ["committed", "none"]),
        ([("A", "PAID"), ("A", 2)], ["committed", "none"]),
        ([("A", "PAID"), ("A", "CANCELLED"), ("B", "PAID")], ["query.states-differ", "committed"]),
        ([("A", "CANCELLED"), ("A", None)], ["query.states-differ", "none"]),
        ([("A", None)], ["query.null-state", "none"]),
        ([("A", "paid")], ["query.other-state", "none"]),
        ([("A", b"PAID")], ["query.other-state", "none"]),
        ([("A", "2")], ["query.other-state", "none"]),
    ],
)
def test_a_state_counts_where_it_is_declared_and_alone(rows: list[tuple[object, ...]], expected: list[str]) -> None:
    assert said(rows) == expected


def test_true_is_another_state_than_one() -> None:
    assert said([("A", True), ("B", 1)], committed=(True,), rolled_back=(1,)) == ["committed", "rolled-back"]
    assert said([("A", True)], committed=(1,)) == ["query.other-state", "none"]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (("a", "PAID"), "query.key-not-asked"),  # a collation that takes texts for one another
        (("A ", "PAID"), "query.key-not-asked"),
        (("C", "PAID"), "query.key-not-asked"),
        ((17, "PAID"), "query.key-of-other-type"),
        ((None, "PAID"), "query.key-of-other-type"),
        (("A", "PAID", "B"), "query.columns"),
        (("A",), "query.columns"),
    ],
)
def test_one_row_that_was_not_asked_for_makes_all_rows_of_the_statement_worthless(
    row: tuple[object, ...], code: str
) -> None:
    assert said([("B", "PAID"), row]) == [code, code]


@pytest.mark.parametrize("returned", [True, "1", 1.0])
def test_a_number_is_no_key_where_it_is_of_another_type(returned: object) -> None:
    assert said([(returned, "PAID")], asked=(1,), key_type=KeyType.INTEGER) == ["query.key-of-other-type"]


def test_more_than_two_rows_a_key_are_no_answer() -> None:
    assert said([("A", "PAID")] * 4) == ["committed", "none"]
    assert said([("A", "PAID")] * 5) == ["query.rows-too-many"] * 2


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("A", "PAID")], []),
        ([("a", "PAID"), ("B", "PAID")], [["B", "C", "D"]]),
        ([("a ", "PAID"), ("\u00c5", "PAID")], [["B", "C", "D"]]),
        ([("B", "PAID")] * 9, [["A", "C", "D"]]),
        ([("X", "PAID")], [["A", "B"], ["C", "D"]]),
        ([(17, "PAID")], []),
        ([("A",)], []),
    ],
)
def test_what_is_spoilt_by_rows_of_other_keys_is_asked_again_without_them(
    rows: list[tuple[object, ...]], expected: list[list[str]]
) -> None:
    assert [[*part] for part in asked_apart(QUERY, ("A", "B", "C", "D"), rows)] == expected


def test_what_is_asked_alone_is_not_asked_again() -> None:
    for row in (("a", "PAID"), ("X", "PAID")):
        assert asked_apart(QUERY, ("A",), [row]) == []


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (KeyType.TEXT, "order-17", "order-17"),
        (KeyType.TEXT, "", None),
        (KeyType.TEXT, "a\0b", None),
        (KeyType.TEXT, "order-\ud800", None),  # as JSON may spell it
        (KeyType.TEXT, "x" * 256, None),
        (KeyType.INTEGER, "17", 17),
        (KeyType.INTEGER, "-1", -1),
        (KeyType.INTEGER, "17abc", None),
        (KeyType.INTEGER, "order-x", None),
        (KeyType.INTEGER, "017", None),
        (KeyType.INTEGER, "\u0661\u0667", None),
        (KeyType.INTEGER, "9223372036854775807", 9223372036854775807),
        (KeyType.INTEGER, "9223372036854775808", None),
        (KeyType.UUID, NAME.upper(), UUID(NAME)),
        (KeyType.UUID, NAME.replace("-", ""), None),
    ],
)
def test_a_key_is_of_the_declared_type_before_a_database_sees_it(
    kind: KeyType, text: str, value: KeyValue | None
) -> None:
    assert kind.value_of(text) == value


def test_a_uuid_is_one_however_a_database_returns_it() -> None:
    asked = (UUID(NAME),)
    for returned in (NAME, UUID(NAME)):
        assert said([(returned, "PAID")], asked=asked, key_type=KeyType.UUID) == ["committed"]
    assert said([(UUID(NAME).bytes, "PAID")], asked=asked, key_type=KeyType.UUID) == ["query.key-of-other-type"]


def test_without_a_row_nothing_is_concluded_while_a_transaction_may_run() -> None:
    young, old = (without_row(QUERY, stored_ms=0, now_ms=now) for now in (599_999, 600_000))
    assert (young.state, old.state) == (BusinessState.UNKNOWN, BusinessState.NO_ROW)


@pytest.mark.parametrize("other", ["ORDER-7e", "order-7e ", "\uff4frder-7\u00e9", "Order-7\u0065\u0301"])
def test_keys_that_a_collation_may_take_for_one_another_are_siblings_and_asked_for_apart(other: str) -> None:
    assert digest_of_key(other) == digest_of_key("order-7e")
    assert in_statements(["a", "order-7e", other, "b"]) == [["a", "order-7e", "b"], [other]]


def test_other_keys_have_other_digests_and_one_statement() -> None:
    keys: list[KeyValue] = [*(f"order-{number}" for number in range(20)), 7, UUID(NAME)]
    assert len({digest_of_key(key) for key in keys}) == len(keys)
    assert in_statements(keys) == [keys]
    assert in_statements([]) == []
