"""The one JSON form of a hand-over's message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.contract.hand_over import decode_hand_over, encode_hand_over
from reconciler.errors import MalformedInput
from reconciler.policy.evidence import StoredMessage, TransactionState

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def stored(**changes: Any) -> StoredMessage:
    values: dict[str, Any] = {
        "unique_key": "0A" * 16,
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "real_topic": "ORDERS",
        "broker": "broker-a",
        "queue_id": 0,
        "queue_offset": 7,
        "commit_log_offset": 1 << 40,
        "born_timestamp_ms": 1,
        "store_timestamp_ms": 2,
        "transaction_state": TransactionState.NONE,
        "prepared_transaction_offset": 0,
        "producer_group": "order-service",
        "check_times": None,
        "reconsume_times": 0,
        "properties": {"TAGS": "paid"},
        "body": b"\x00\xff",
        "flag": 3,
    }
    return StoredMessage(**(values | changes))


@given(body=st.binary(max_size=200), properties=st.dictionaries(TEXT, TEXT, max_size=4), times=st.none() | st.just(4))
def test_a_message_survives_the_row(body: bytes, properties: dict[str, str], times: int | None) -> None:
    message = stored(body=body, properties=properties, check_times=times)
    again = StoredMessage.handed_over(decode_hand_over(encode_hand_over(message)))
    assert again == message
    assert again.content_digest == message.content_digest


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"unique_key": "x"}, {"real_topic": 1}, {"queue_id": "0"}, {"queue_id": True}, {"properties": []},
        {"properties": {"a": 1}}, {"body": "%%%"}, {"body": None}, {"check_times": "1"},
    ],
)  # fmt: skip
def test_a_row_that_was_tampered_with_is_named(change: dict[str, object]) -> None:
    document = json.loads(encode_hand_over(stored())) | change
    with pytest.raises(MalformedInput):
        decode_hand_over(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(MalformedInput):
        decode_hand_over(text)
