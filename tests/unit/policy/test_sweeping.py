"""What the sweeper decides of a row, by every answer that inboxes give."""

from __future__ import annotations

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import OutboxState
from reconciler.policy.evidence import InboxRow, Lookup, Presence, WitnessAnswer
from reconciler.policy.sweeping import (
    OutboxFact,
    SettledTags,
    Settlement,
    SweepRules,
    SweptSubscription,
    Widening,
    agreed_tags,
)

BILLING = Subscription(environment="test", topic="ORDERS", group="billing")
STOCK = Subscription(environment="test", topic="ORDERS", group="stock")
POLICY = SweepRules(settle_after_seconds=10, announce_again_after_seconds=60)
KEY = "0" * 32


def row(*, tag: str | None = "paid", announced_at_ms: int | None = 1_000, digest: bytes | None = b"x") -> OutboxFact:
    return OutboxFact(
        unique_key=KEY, topic="ORDERS", tag=tag, state=OutboxState.ANNOUNCED, created_at_ms=0,
        announced_at_ms=announced_at_ms, content_digest=digest,
    )  # fmt: skip


def applied(*digests: bytes | None) -> Lookup[InboxRow]:
    rows = tuple(
        InboxRow(
            group="g", unique_key=KEY, topic="ORDERS", content_digest=digest, source="consumer", applied_at_ms=number
        )
        for number, digest in enumerate(digests or (b"x",))
    )
    return Lookup(presence=Presence.FOUND, records=rows)


ABSENT: Lookup[InboxRow] = Lookup(presence=Presence.ABSENT)
AWAY: Lookup[InboxRow] = Lookup.unknown("inbox", "away")
INCOMPLETE: Lookup[InboxRow] = Lookup(
    presence=Presence.UNKNOWN,
    answers=(WitnessAnswer(witness="inbox", presence=Presence.UNKNOWN, detail="half", is_incomplete=True),),
)


def bin_of(settlement: Settlement) -> str:
    (name,) = [name for name in Settlement.__slots__ if getattr(settlement, name)]
    return str(name)


@pytest.mark.parametrize(
    ("billing", "stock", "expected"),
    [
        (applied(), applied(), "settled"),
        (applied(None), applied(), "settled"),
        (applied(), ABSENT, "absent"),
        (applied(), AWAY, "unknown"),
        (applied(), None, "unknown"),
        (applied(b"other"), AWAY, "differing"),
        (applied(b"x", b"x"), AWAY, "doubled"),
        (ABSENT, AWAY, "absent"),
        (applied(), INCOMPLETE, "unknown"),
    ],
)
def test_a_row_is_settled_only_by_every_groups_one_effect(
    billing: Lookup[InboxRow] | None, stock: Lookup[InboxRow] | None, expected: str
) -> None:
    settlement = Settlement()
    answers = {
        subscription: {} if lookup is None else {KEY: lookup}
        for subscription, lookup in ((BILLING, billing), (STOCK, stock))
    }
    settlement.add(row(), [SweptSubscription(subscription=BILLING), SweptSubscription(subscription=STOCK)], answers)
    assert bin_of(settlement) == expected


def test_a_row_without_an_inbox_to_ask_is_announced_a_second_time_and_no_more() -> None:
    settlement = Settlement()
    settlement.add(row(), [], {})
    settlement.add(row(announced_at_ms=61_000), [SweptSubscription(subscription=BILLING)], {})
    assert [fact.announced_at_ms for fact in settlement.unprovable] == [1_000, 61_000]
    assert settlement.due_again(POLICY, 61_000) == [row()]
    assert settlement.due_again(POLICY, 60_999) == []
    assert settlement.due_again(POLICY, 1_000_000) == [row()]


def test_a_hidden_difference_is_announced_at_the_first_look_and_then_as_any_other() -> None:
    settlement = Settlement(differing=[(row(), "billing"), (row(announced_at_ms=30_000), "billing")])
    assert settlement.due_again(POLICY, 31_000) == [row()]
    assert settlement.due_again(POLICY, 90_000) == [row(), row(announced_at_ms=30_000)]


def test_a_group_that_does_not_take_the_tag_is_not_waited_for() -> None:
    settlement = Settlement()
    settlement.add(row(), [SweptSubscription(subscription=BILLING, tags=frozenset({"refunded"}))], {})
    assert bin_of(settlement) == "settled"


@pytest.mark.parametrize(
    ("before", "now", "agreed"),
    [
        (None, {"a"}, {"a"}),
        ("*", {"a"}, {"a"}),
        ({"a"}, None, {"a"}),
        ({"a", "b"}, {"b", "c"}, {"b"}),
        ("*", None, None),
    ],
)
def test_rows_are_settled_by_what_old_and_new_setting_both_take(
    before: set[str] | str | None, now: set[str] | None, agreed: set[str] | None
) -> None:
    stored = None if before is None else SettledTags(tags=None if before == "*" else frozenset(before), version=1)
    swept = SweptSubscription(subscription=BILLING, tags=None if now is None else frozenset(now))
    assert agreed_tags(stored, swept) == agreed


def test_a_wider_setting_concerns_only_rows_that_were_settled_without_the_group() -> None:
    widening = Widening(SweptSubscription(subscription=BILLING), SettledTags(tags=frozenset({"refunded"}), version=1))
    assert widening.concerns(row())
    assert widening.concerns(row(tag=None))
    assert not widening.concerns(row(tag="refunded"))
    assert widening.missing([row()], {KEY: applied()}) == set()
    assert widening.missing([row()], {KEY: ABSENT}) == {KEY}
    assert widening.missing([row()], {KEY: applied(b"other")}) == {KEY}
    assert widening.missing([row()], {KEY: applied(b"x", b"x")}) == {KEY}
    assert widening.missing([row()], {KEY: AWAY}) is None
    assert widening.missing([row()], {KEY: INCOMPLETE}) == {KEY}, "it holds up no other key"
