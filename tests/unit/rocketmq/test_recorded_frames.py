"""What real brokers sent and were sent is read and written bit for bit."""

from __future__ import annotations

import random

import pytest

from reconciler.rocketmq.wire.batch import decode_batch
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import FrameReader, Serialization, decode_frame, encode_frame
from reconciler.rocketmq.wire.properties import decode_properties, encode_properties
from reconciler.rocketmq.wire.record import decode_records
from reconciler.rocketmq.wire.tolerant_json import parse_object
from tests.brokers.batches import encode_batch
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.recorded import RecordedFrame, recorded_frames, recorded_record_bodies

REQUESTS = [frame for frame in recorded_frames() if frame.direction == "request"]


def _name(frame: RecordedFrame) -> str:
    return f"{frame.source}-{frame.what}"


def test_recordings_of_every_family_are_there() -> None:
    assert len(recorded_frames()) > 200
    for version in ("3.2.6", "4.2.0", "4.4.0", "4.9", "5.1"):
        assert any(version in frame.source for frame in recorded_frames()), version
    assert len(recorded_record_bodies()) > 40


@pytest.mark.parametrize("frame", recorded_frames(), ids=_name)
def test_a_recorded_frame_survives_decoding_and_encoding(frame: RecordedFrame) -> None:
    command = decode_frame(frame.data[4:])
    assert decode_frame(encode_frame(command)[4:]) == command
    assert command.is_response is (frame.direction == "response")


@pytest.mark.parametrize("frame", REQUESTS, ids=_name)
def test_a_recorded_request_is_written_as_it_was(frame: RecordedFrame) -> None:
    command = decode_frame(frame.data[4:])
    if command.serialization is Serialization.JSON:
        written = encode_frame(command)
        assert decode_frame(written[4:]) == command
        if b'": ' in frame.data[8:60]:  # recorded with the separators that this client writes, too
            assert written == frame.data
    else:
        assert encode_frame(command) == frame.data


@pytest.mark.parametrize("body", recorded_record_bodies())
def test_recorded_messages_are_decoded_bit_for_bit(body: bytes) -> None:
    records = decode_records(body)
    assert records
    assert b"".join(encode_record(record) for record in records) == body
    for record in records:
        assert record.plain_body() or record.transaction_type.value == "rollback"
        assert record.topic
        assert record.store_timestamp_ms > 1_700_000_000_000
        assert encode_properties(decode_properties(encode_properties(record.properties))) == encode_properties(
            record.properties
        )


def test_recorded_batches_are_decoded_bit_for_bit() -> None:
    bodies = [
        command.body
        for command in (decode_frame(frame.data[4:]) for frame in REQUESTS)
        if command.code == RequestCode.SEND_BATCH_MESSAGE
    ]
    for body in bodies:
        assert len(decode_batch(body)) > 1
        assert encode_batch(decode_batch(body)) == body


def test_recorded_routes_of_both_dialects_say_the_same() -> None:
    routes = [
        parse_object(decode_frame(frame.data[4:]).body)
        for frame in recorded_frames()
        if frame.direction == "response" and frame.what.startswith("GET_ROUTEINFO_BY_TOPIC")
    ]
    assert len(routes) >= 10
    for route in routes:
        brokers = route["brokerDatas"]
        assert isinstance(brokers, list)
        broker = brokers[0]
        assert isinstance(broker, dict)
        addresses = broker["brokerAddrs"]
        assert isinstance(addresses, dict)
        assert {str(number) for number in addresses} == {"0"}


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_cut_anywhere_gives_the_same_frames(seed: int) -> None:
    stream = b"".join(frame.data for frame in recorded_frames())
    expected = [decode_frame(frame.data[4:]) for frame in recorded_frames()]
    cut = random.Random(seed)
    reader = FrameReader()
    got = []
    at = 0
    while at < len(stream):
        size = cut.choice((1, 3, 4, 5, 100, 1_000, 50_000))
        got += reader.feed(stream[at : at + size])
        at += size
    assert got == expected
    assert not reader.is_in_frame
