"""Where the business's key stands in a half, and when its committed row is that half's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reconciler.halves.business_key import KEY_SOURCE, business_key, judge_halves
from reconciler.halves.values import Half, HalfCopy, HalfFate
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, CommitQuery, KeyType, KeyValue
from reconciler.rocketmq.wire.record import MessageRecord
from tests.unit.policy.test_commit_query_rows import QUERY

NOW_MS = 1_000_000_000


def record(body: bytes = b"", **properties: str) -> MessageRecord:
    values = dict.fromkeys(MessageRecord.__dataclass_fields__, 0)
    return MessageRecord(**{**values, "body": body, "properties": properties})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "body", "properties", "key"),
    [
        ("UNIQ_KEY", b"", {"UNIQ_KEY": "U1"}, "U1"),
        ("KEYS", b"", {"KEYS": "order-17"}, "order-17"),
        ("KEYS", b"", {"KEYS": "order-17 user-3"}, ""),
        ("KEYS", b"", {}, ""),
        ("property:orderNo", b"", {"orderNo": "17"}, "17"),
        ("property:orderNo", b"", {}, ""),
        ("body:order.id", b'{"order": {"id": 17}}', {}, "17"),
        ("body:order.id", b'{"order": {"id": "A-17"}}', {}, "A-17"),
        ("body:order.id", b'{"order": {"id": 17.0}}', {}, ""),
        ("body:order.id", b'{"order": {"id": true}}', {}, ""),
        ("body:order.id", b'{"order": [17]}', {}, ""),
        ("body:order.id", b"payment", {}, ""),
        ("body:order.id", b"[" * 100_000, {}, ""),
    ],
)
def test_a_half_has_one_key_or_none(source: str, body: bytes, properties: dict[str, str], key: str) -> None:
    assert KEY_SOURCE.fullmatch(source)
    assert business_key(record(body, **properties), source) == key


def half(key: str, *, business: str = "A", state: HalfFate = HalfFate.OPEN, tags: str = "") -> Half:
    copy = HalfCopy(
        broker="b", topic="ORDERS", producer_group="PG", unique_key=key, queue_offset=0, commit_log_offset=0,
        born_ms=0, store_ms=0, asked=0, is_put_back=False, left_alone_seconds=6.0, offset_message_id="",
        tags=tags, business_key=business,
    )  # fmt: skip
    return Half(copy=copy, state=state)


COMMITTED = BusinessAnswer(BusinessState.COMMITTED)


def judged(
    *halves: Half,
    query: CommitQuery = QUERY,
    rows: BusinessAnswer | None = COMMITTED,
    delivered: bool | None = False,
    now_ms: int = NOW_MS,
) -> dict[str, str]:
    def ask(keys: Sequence[KeyValue]) -> dict[KeyValue, BusinessAnswer | None]:
        assert 0 < len(keys) <= 500
        assert len(set(keys)) == len(keys)
        return dict.fromkeys(keys, rows)

    found = judge_halves(
        query,
        halves,
        ask=ask,
        others=lambda copies: {copy.identity: delivered for copy in copies},
        now_ms=now_ms,
    )
    return {key: one.state.value if one.why is None else one.why.code.name for (_, key), one in found.items()}


def test_a_committed_row_proves_the_only_half_of_its_key() -> None:
    assert judged(half("U1"), half("U2", business="B")) == {"U1": "committed", "U2": "committed"}


def test_of_two_tries_of_one_key_neither_is_called_committed() -> None:
    both = {"U1": "query.other-halves", "U2": "query.other-halves"}
    assert judged(half("U1"), half("U2", state=HalfFate.GIVEN_UP)) == both
    assert judged(half("U1"), half("U2", state=HalfFate.FRESH)) == {"U1": "query.other-halves"}


def test_a_half_of_another_tag_or_a_copy_on_another_broker_is_no_second_try() -> None:
    assert judged(half("U1", tags="PAID"), half("U2", tags="SHIPPED")) == {"U1": "committed", "U2": "committed"}
    one = half("U1")
    assert judged(one, replace(one, copy=replace(one.copy, broker="other"))) == {"U1": "committed"}


@pytest.mark.parametrize(
    ("delivered", "expected"), [(True, "query.other-delivered"), (None, "query.others-not-looked-up")]
)
def test_a_row_may_be_that_of_a_message_that_was_delivered(delivered: bool | None, expected: str) -> None:
    assert judged(half("U1"), delivered=delivered) == {"U1": expected}
    assert judged(half("U1"), half("U2", state=HalfFate.DELIVERED)) == {"U1": "query.other-delivered"}


def test_a_half_without_a_key_and_one_without_a_row_are_told_apart() -> None:
    assert judged(half("U1", business="")) == {"U1": "query.no-key"}
    assert judged(half("U1", business="x"), query=replace(QUERY, key_type=KeyType.INTEGER)) == {"U1": "query.no-key"}
    assert judged(half("U1"), rows=None) == {"U1": "no-row"}
    assert judged(half("U1"), rows=None, now_ms=1_000) == {"U1": "query.young"}


def test_many_keys_are_asked_in_pages() -> None:
    many = [half(f"U{number}", business=f"B{number}") for number in range(1_201)]
    assert set(judged(*many).values()) == {"committed"}


def test_two_spellings_of_one_key_are_two_tries_of_it() -> None:
    """Databases compare without regard to letters."""
    assert set(judged(half("U1", business="order-1a"), half("U2", business="ORDER-1A")).values()) == {
        "query.other-halves"
    }
