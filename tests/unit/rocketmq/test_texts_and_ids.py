from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.contract.properties import RESERVED
from reconciler.errors import InvalidValue, MalformedInput, ProtocolViolation
from reconciler.rocketmq.wire.address import parse_address, parse_addresses
from reconciler.rocketmq.wire.message import MAXIMUM_BODY_BYTES, Message
from reconciler.rocketmq.wire.message_id import OffsetMessageId, decode_offset_message_id, encode_offset_message_id
from reconciler.rocketmq.wire.properties import (
    SYSTEM_PROPERTIES,
    StoredProperties,
    decode_properties,
    encode_properties,
)
from reconciler.rocketmq.wire.tolerant_json import parse_object, parse_tolerant_json
from tests.unit.contract.keys import KEYS

KEY = "7F0000010000000000000000000000AA"

# --------------------------------------------------------------------------- properties


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1)))
def test_properties_come_back_or_are_refused(properties: dict[str, str]) -> None:
    spoiled = any(mark in text for pair in properties.items() for text in pair for mark in "\x01\x02")
    if spoiled:
        with pytest.raises(MalformedInput):
            encode_properties(properties)
    else:
        assert decode_properties(encode_properties(properties)) == properties


def test_entries_without_name_or_value_are_dropped_as_java_does() -> None:
    assert decode_properties("A\x011\x02\x02B\x01\x02\x01C\x02D\x02E\x01last, without an end") == {
        "A": "1",
        "E": "last, without an end",
    }


def test_names_that_no_digest_covers_are_refused_to_callers_or_set_by_them_on_purpose() -> None:
    settable = {"CHECK_IMMUNITY_TIME_IN_SECONDS", "WAIT", "__SHARDINGKEY", "BUYER_ID", "MSG_TYPE"}
    assert settable | {"RECONCILER_SIGNATURE"} == RESERVED - SYSTEM_PROPERTIES
    assert SYSTEM_PROPERTIES <= RESERVED


def test_stored_properties_are_a_mapping() -> None:
    stored = StoredProperties(b"A\x011\x02B\x012\x02")
    assert stored == {"A": "1", "B": "2"}
    assert (len(stored), list(stored), stored.get("C"), "A" in stored) == (2, ["A", "B"], None, True)
    assert "'A': '1'" in repr(stored)


# --------------------------------------------------------------------------- JSON of fastjson


def test_integer_keys_and_object_keys() -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"a":-1.5e2}},0:[true,null,"\\u00e9"], "e":{}}'
    parsed = parse_object(text)
    assert parsed[0] == [True, None, "é"]
    table = parsed["offsetTable"]
    assert isinstance(table, dict)
    assert table == {(("brokerName", "b"), ("queueId", 0), ("topic", "T")): {"a": -150.0}}


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[", b"{1", b"{1:", b"{1:2", b"{1:2,", b"[1", b"[1,", b'{"a', b"{1:2}x", b"\xff", b"{null:1}",
     b"{[]:1}", b"{{1:2}:3}", b'{{"a":{}}:1}', b"nul", b"-", b"[" * 100_000, b"{1:" * 1_000, b"{1 2}"],
)  # fmt: skip
def test_what_is_no_json_costs_one_kind_of_error(text: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        parse_tolerant_json(text)


def test_a_list_is_no_object() -> None:
    with pytest.raises(ProtocolViolation):
        parse_object(b"[]")


# --------------------------------------------------------------------------- ids and addresses


def test_offset_ids_of_the_protocol_sheet() -> None:
    assert encode_offset_message_id("127.0.0.1", 10_911, 144) == "7F00000100002A9F0000000000000090"
    assert decode_offset_message_id("7F00000100002A9F0000000000000090") == OffsetMessageId(
        host="127.0.0.1", port=10_911, commit_log_offset=144
    )
    v6 = encode_offset_message_id("2001:db8::1", 10_911, 2**40)
    assert len(v6) == 56
    assert decode_offset_message_id(v6).host == "2001:db8::1"


@pytest.mark.parametrize(
    "text",
    ["", "zz", "7F", KEY[:-1], "7F 00000100002A9F0000000000000090", "7F000001FFFFFFFF0000000000000090",
     "7F00000100000000000000000000009F", "7F00000100002A9FFFFFFFFFFFFFFFFF", "00" * 17],
)  # fmt: skip
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(MalformedInput):
        decode_offset_message_id(text)


def test_addresses() -> None:
    assert parse_address("broker:10911") == ("broker", 10_911)
    assert parse_address("[::1]:9876") == ("::1", 9_876)
    assert parse_addresses(" a:1 ; b:2;") == ("a:1", "b:2")
    for bad in ("", "host", "host:", ":1", "host:0", "host:65536", "::1:9876", "host:1x", "host:+1", "host:\u0661"):
        with pytest.raises(InvalidValue):
            parse_address(bad)
    for bad in ("", ";", "a:1;b"):
        with pytest.raises(InvalidValue):
            parse_addresses(bad)


# --------------------------------------------------------------------------- messages


def test_a_message_is_checked_when_it_is_made() -> None:
    Message(topic="%RETRY%a|b_c-1", body=b"x", tags="T", keys=("a", "b"), properties={"BUSINESS_ID": "é"})
    for wrong in (
        {"topic": ""},
        {"topic": "a b"},
        {"topic": "x" * 128},
        {"topic": "é"},
        {"body": b""},
        {"body": "text"},
        {"body": b"x" * (MAXIMUM_BODY_BYTES + 1)},
        {"tags": ""},
        {"tags": "a || b"},
        {"tags": " a"},
        {"keys": ("a b",)},
        {"keys": ("a\x01",)},
        {"properties": {"a": "b\x02"}},
        {"properties": {"a": ""}},
        {"properties": {"a": "\ud800"}},
        {"properties": {"UNIQ_KEY": "x"}},
        {"properties": {"TRAN_MSG": "true"}},
        {"properties": {"DELAY": "3"}},
        {"properties": {"a": "b" * 32_000}},
        {"unique_key": "abc"},
        {"unique_key": "order 42 of another client"},
        {"unique_key": "x" * 65},
        {"flag": 2**31},
        {"delay_level": 0},
        {"delay_level": 19},
    ):
        arguments: dict[str, object] = {"topic": "T", "body": b"x", **wrong}
        with pytest.raises(InvalidValue):
            Message(**arguments)  # type: ignore[arg-type]  # wrong on purpose


@given(key=KEYS)
def test_a_message_goes_out_under_any_key_that_the_contract_knows(key: str) -> None:
    assert Message(topic="T", body=b"x", unique_key=key).wire_properties(key)["UNIQ_KEY"] == key


def test_what_goes_over_the_wire() -> None:
    message = Message(topic="T", body=b"x", tags="A", keys=("k1", "k2"), properties={"u": "v"}, delay_level=3)
    assert message.wire_properties(KEY) == {
        "UNIQ_KEY": KEY,
        "KEYS": "k1 k2",
        "TAGS": "A",
        "WAIT": "true",
        "DELAY": "3",
        "u": "v",
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"body": "text"}, r"body = 'str': bytes are wanted: text\.encode\(\)"),
        ({"body": {}}, r"body = 'dict': bytes are wanted: .*json"),
        ({"keys": 7}, "keys = 7: words in a tuple"),
        ({"keys": None}, "keys = None: words in a tuple"),
        ({"tags": 7}, "tags = 7: a text"),
        ({"properties": [("a", "b")]}, r"properties = .*in a dict"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_name(wrong: Any, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        Message(**{"topic": "T", "body": b"x", **wrong})
