"""Frames that real brokers sent (tests/brokers/record_frames.py): binary headers, batches, groups, IPv6."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.rocketmq.wire.batch import decode_batch
from reconciler.rocketmq.wire.broker_facts import facts_of
from reconciler.rocketmq.wire.codes import MQVersion
from reconciler.rocketmq.wire.frame import Command, Serialization, decode_frame, encode_frame
from reconciler.rocketmq.wire.record import MessageRecord, decode_records
from tests.brokers.batches import encode_batch
from tests.services.rocketmq import VERSIONS
from tests.stored_bytes import encode_record

FOLDER = Path(__file__).parents[2] / "frames"
WITH_BINARY = VERSIONS[1:]
WITH_IPV6 = ("4.9.7", "5.3.3")

Frame = tuple[str, str, bytes]


def frames(version: str) -> list[Frame]:
    lines = (FOLDER / f"extra_{version}.jsonl").read_text(encoding="utf-8").splitlines()
    parsed = [json.loads(line) for line in lines]
    return [(line["dir"], line["what"], bytes.fromhex(line["hex"])) for line in parsed]


def response(version: str, what: str) -> Command:
    (found,) = [raw for way, name, raw in frames(version) if way == "response" and name == what]
    return decode_frame(found[4:])


def request(version: str, what: str) -> Command:
    (found,) = [raw for way, name, raw in frames(version) if way == "request" and name == what]
    return decode_frame(found[4:])


def records(version: str, what: str) -> list[MessageRecord]:
    return decode_records(response(version, what).body)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_frame_decodes_and_encodes_to_an_equal_one(version: str) -> None:
    recorded = frames(version)
    assert len(recorded) > 40
    for way, what, raw in recorded:
        command = decode_frame(raw[4:])
        assert command.is_response == (way == "response"), what
        again = encode_frame(command)
        assert decode_frame(again[4:]) == command, what
        if way == "request":
            assert again == raw, what


@pytest.mark.parametrize("version", VERSIONS)
def test_every_record_is_encoded_bit_for_bit(version: str) -> None:
    pulled = [
        decode_frame(raw[4:])
        for way, what, raw in frames(version)
        if way == "response" and what.startswith("PULL_MESSAGE")
    ]
    bodies = [command.body for command in pulled if command.code == 0]
    assert len(bodies) >= 2
    for body in bodies:
        assert b"".join(encode_record(record) for record in decode_records(body)) == body


@pytest.mark.parametrize("version", VERSIONS)
def test_a_compressed_body_is_read_as_it_was_meant(version: str) -> None:
    plain, compressed = records(version, "PULL_MESSAGE zlib")
    assert plain.plain_body() == b"plain body"
    assert compressed.body != compressed.plain_body()
    assert compressed.plain_body() == b"compressed " * 600
    assert plain.keys == ("order-1", "customer-9")
    assert (plain.tags, plain.flag, plain.unique_key) == ("TagA", 7, "B" * 32)


@pytest.mark.parametrize("version", WITH_BINARY)
def test_a_batch_is_written_as_java_writes_it_and_comes_back_as_messages(version: str) -> None:
    sent = request(version, "SEND_BATCH_MESSAGE")
    entries = decode_batch(sent.body)
    assert encode_batch(entries) == sent.body
    received = records(version, "PULL_MESSAGE batch")
    assert [record.body for record in received] == [entry.body for entry in entries]
    assert [record.keys for record in received] == [(f"batch-{number}",) for number in range(3)]
    assert len(response(version, "SEND_BATCH_MESSAGE").fields["msgId"].split(",")) == 3


@pytest.mark.parametrize("version", WITH_BINARY)
def test_a_binary_request_may_be_answered_in_either_form(version: str) -> None:
    reply = response(version, "GET_MAX_OFFSET binary")
    in_kind = facts_of(MQVersion.of_release(version)).replies_in_kind
    assert reply.serialization is (Serialization.ROCKETMQ if in_kind else Serialization.JSON)
    assert (reply.opaque, dict(reply.fields)) == (777, {"offset": "2"})
    refused = response(version, "PULL_MESSAGE binary refused")
    assert refused.code == 17
    assert refused.remark is not None
    assert "no-such-topic" in refused.remark


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_sent_back_names_where_it_came_from(version: str) -> None:
    (record,) = records(version, "PULL_MESSAGE retry topic")
    assert record.topic == "%RETRY%CG_A"
    assert record.reconsume_times == 1
    assert record.properties["RETRY_TOPIC"] == "TopicExtra"
    assert record.unique_key == "B" * 32


@pytest.mark.parametrize("version", VERSIONS)
def test_members_of_a_group_hear_of_each_other(version: str) -> None:
    (raw,) = [raw for way, _, raw in frames(version) if way == "broker-request"]
    notice = decode_frame(raw[4:])
    assert (notice.code, notice.is_oneway, notice.fields["consumerGroup"]) == (40, True, "CG_A")
    members = json.loads(response(version, "GET_CONSUMER_LIST_BY_GROUP").body)
    assert sorted(members["consumerIdList"]) == ["127.0.0.1@1#1", "127.0.0.1@2#2"]


@pytest.mark.parametrize("version", WITH_IPV6)
def test_records_with_ipv6_hosts(version: str) -> None:
    (both,) = records(version, "PULL_MESSAGE IPv6")
    assert (both.born_host[0], both.store_host[0]) == ("::1", "::1")
    assert both.body == b"from ::1 to ::1"
    assert len(both.offset_message_id) == 56
    assert both.offset_message_id == response(version, "SEND_MESSAGE_V2 IPv6").fields["msgId"]
    (stored,) = records(version, "PULL_MESSAGE IPv4 born, IPv6 stored")
    assert (stored.born_host[0], stored.store_host[0]) == ("127.0.0.1", "::1")
