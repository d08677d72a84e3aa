from __future__ import annotations

import json

import pytest

from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.wire.frame import (
    FLAG_ONEWAY,
    MAXIMUM_FRAME_BYTES,
    Command,
    FrameReader,
    Serialization,
    decode_frame,
    encode_frame,
    reply_to,
)

#: Reply of a 4.9.8 broker to GET_MAX_OFFSET, from its header word on.
BINARY_REPLY = bytes.fromhex(
    "01000022 0000 00 0199 00000309 00000001 00000000 0000000d 0006 6f6666736574 00000001 32".replace(" ", "")
)


def _json_frame(header: object, body: bytes = b"") -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(encoded).to_bytes(4, "big") + encoded + body


def test_a_binary_reply_of_a_real_broker_is_read() -> None:
    command = decode_frame(BINARY_REPLY)
    assert command == Command(
        code=0,
        language="JAVA",
        version=409,
        opaque=777,
        flag=1,
        fields={"offset": "2"},
        serialization=Serialization.ROCKETMQ,
    )
    assert encode_frame(command) == len(BINARY_REPLY).to_bytes(4, "big") + BINARY_REPLY


@pytest.mark.parametrize("form", list(Serialization))
def test_every_part_of_a_command_survives_both_forms(form: Serialization) -> None:
    command = Command(
        code=310,
        opaque=2**31 - 1,
        flag=FLAG_ONEWAY,
        version=409,
        remark="é \U0001f600 \n",
        fields={"i": "KEYS\x01a\x02", "empty": "", "é": "ü"},
        body=bytes(range(256)),
        serialization=form,
    )
    assert decode_frame(encode_frame(command)[4:]) == command
    assert command.is_oneway
    assert not command.is_response


def test_a_reply_keeps_number_and_form_of_its_request() -> None:
    request = Command(code=37, opaque=99, serialization=Serialization.ROCKETMQ)
    answer = reply_to(request, 0, fields={"a": "b"})
    assert (answer.opaque, answer.serialization, answer.is_response) == (99, Serialization.ROCKETMQ, True)


def test_text_beyond_ascii_is_escaped_for_brokers_with_another_character_set() -> None:
    frame = encode_frame(Command(code=10, remark="é", fields={"topic": "\U0001f600"}))
    assert max(frame[8:]) < 128


@pytest.mark.parametrize("length", [0, 3, MAXIMUM_FRAME_BYTES + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_senseless_length_is_refused_before_its_bytes_come(length: int) -> None:
    with pytest.raises(ProtocolViolation):
        FrameReader().feed(length.to_bytes(4, "big"))


def test_frames_before_a_senseless_length_do_not_hide_it() -> None:
    good = encode_frame(Command(code=1))
    with pytest.raises(ProtocolViolation):
        FrameReader().feed(good + b"\x7f\xff\xff\xff")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\5{}",  # header longer than the frame
        b"\2\0\0\2{}",  # unknown form
        _json_frame(b"[]"),
        _json_frame(b"nonsense"),
        _json_frame(b"\xff\xfe"),
        _json_frame(b"[" * 200_000),
        _json_frame(b'{"a":' * 100_000),
        _json_frame(b'{"code":' + b"9" * 5_000 + b"}"),
        _json_frame({"code": "0"}),
        _json_frame({"code": True}),
        _json_frame({"code": 2**31}),
        _json_frame({"code": 1.5}),
        _json_frame({"code": 0, "remark": 5}),
        _json_frame({"code": 0, "language": None}),
        _json_frame({"code": 0, "extFields": []}),
        _json_frame({"code": 0, "extFields": {"a": {}}}),
        BINARY_REPLY[:-1],
        BINARY_REPLY[:4] + b"\0" * 10,
        b"\1\0\0\x15" + b"\0" * 13 + b"\x7f\xff\xff\xff" + b"\0" * 4,  # a remark of 2 GiB
        b"\1\0\0\x15" + b"\0" * 13 + b"\xff\xff\xff\xff" + b"\0" * 4,  # a remark of -1 bytes
    ],
)
def test_bad_bytes_raise_one_kind_of_error(frame: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_frame(frame)


def test_numbers_and_nulls_among_the_fields_become_text_or_nothing() -> None:
    command = decode_frame(_json_frame({"code": 0, "extFields": {"a": 1, "b": True, "c": None, "d": "x"}}))
    assert command.fields == {"a": "1", "b": "true", "d": "x"}


def test_a_header_without_numbers_gets_any_others_than_javas() -> None:
    """fastjson leaves out what has Java's default: an int is 0."""
    assert decode_frame(_json_frame({})) == Command(code=0, opaque=0, flag=0, version=0, language="JAVA")


def test_a_frame_that_no_peer_would_take_is_not_written() -> None:
    with pytest.raises(ProtocolViolation):
        encode_frame(Command(code=10, body=b"x" * MAXIMUM_FRAME_BYTES))


def test_a_number_that_does_not_fit_a_binary_header_is_refused() -> None:
    with pytest.raises(ProtocolViolation):
        encode_frame(Command(code=200_050, serialization=Serialization.ROCKETMQ))
