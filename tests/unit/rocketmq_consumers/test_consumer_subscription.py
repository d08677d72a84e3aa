"""Tags: what the broker is told and what the client compares again."""

from __future__ import annotations

import pytest

from reconciler.embedded import layout
from reconciler.errors import InvalidValue
from reconciler.rocketmq.client.topic_subscription import java_hash, subscribe_to


@pytest.mark.parametrize("expression", ["*", "", "  ", " * "])
def test_every_tag_is_wanted_without_an_expression(expression: str) -> None:
    subscription = subscribe_to("T", expression, version=1)
    assert subscription.expression == "*"
    assert subscription.wants("any")
    assert subscription.wants(None)


def test_only_named_tags_are_wanted() -> None:
    subscription = subscribe_to("T", "paid || refunded|| ", version=1)
    assert subscription.tags == {"paid", "refunded"}
    assert subscription.wants("paid")
    assert not subscription.wants("Paid")
    assert not subscription.wants(None)


def test_a_tag_with_the_hash_of_a_wanted_one_is_not_taken() -> None:
    assert java_hash("Aa") == java_hash("BB")
    assert not subscribe_to("T", "Aa", version=1).wants("BB")


def test_an_expression_without_tags_is_refused() -> None:
    with pytest.raises(InvalidValue, match="expression"):
        subscribe_to("T", " || ", version=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("TagA", 2598919), ("polygenelubricants", -2147483648), ("\U0001f600", 1772899)],
)
def test_the_hash_is_that_of_java(text: str, value: int) -> None:
    assert (java_hash(text), layout.java_hash(text)) == (value, value)


def test_the_heartbeat_names_tags_and_codes_in_the_same_order() -> None:
    data = subscribe_to("T", "b || a", version=42).to_heartbeat()
    assert data["tagsSet"] == ["a", "b"]
    assert data["codeSet"] == [97, 98]
    assert (data["subString"], data["subVersion"], data["topic"]) == ("b || a", 42, "T")
