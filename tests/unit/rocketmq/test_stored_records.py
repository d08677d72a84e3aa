from __future__ import annotations

import zlib
from dataclasses import replace

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import MalformedInput, MissingDependency, ProtocolViolation
from reconciler.evidence.stored_message import stored_message
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import read_pull_answer
from reconciler.rocketmq.wire import compression
from reconciler.rocketmq.wire.batch import BatchEntry, decode_batch
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC, HALF_TOPIC, ResponseCode, SystemFlag
from reconciler.rocketmq.wire.compression import OPTIONAL_MODULES, compress_zlib, decompress
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.received_message import received
from reconciler.rocketmq.wire.record import MAGIC_V1, MAGIC_V2, MessageRecord, TransactionType, decode_records
from tests.brokers.batches import encode_batch
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.missing_packages import without_package
from tests.unit.rocketmq.records import PLAIN, record

#: Where STOREHOST begins in a record that was born on an IPv4 host.
_STORE_HOST_AT = 64


def _again(one: MessageRecord) -> MessageRecord:
    data = encode_record(one)
    (decoded,) = decode_records(data)
    assert encode_record(decoded) == data
    assert decoded == one
    return decoded


def test_every_field_is_decoded_into_its_own_place() -> None:
    distinct = MessageRecord(
        topic="T",
        queue_id=1,
        flag=2,
        queue_offset=3,
        physical_offset=4,
        system_flag=8,
        born_timestamp_ms=5,
        born_host=("10.0.0.1", 6),
        store_timestamp_ms=7,
        store_host=("10.0.0.2", 9),
        reconsume_times=10,
        prepared_transaction_offset=11,
        body=b"B",
        properties={"P": "12"},
        body_crc=13,
        broker_name="broker",
    )
    assert decode_records(encode_record(distinct), "broker") == [distinct]


def test_the_fixed_part_of_an_ipv4_record_is_91_bytes() -> None:
    data = encode_record(replace(PLAIN, properties={}))
    assert len(data) == 91 + len(PLAIN.body) + len(PLAIN.topic)
    assert int.from_bytes(data[4:8], "big") == MAGIC_V1


def test_a_topic_over_127_bytes_takes_the_second_form() -> None:
    long = replace(PLAIN, topic="T" * 200)
    assert int.from_bytes(encode_record(long)[4:8], "big") == MAGIC_V2
    _again(long)
    edge = replace(PLAIN, topic="T" * 127)
    assert int.from_bytes(encode_record(edge)[4:8], "big") == MAGIC_V1
    _again(edge)


@pytest.mark.parametrize(
    ("flag", "born", "store"),
    [
        (SystemFlag.BORN_HOST_V6, "fe80::1", "10.0.0.1"),
        (SystemFlag.STORE_HOST_V6, "10.0.0.1", "2001:db8::2"),
        (SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6, "::1", "2001:db8::2"),
    ],
)
def test_ipv6_hosts_move_everything_behind_them(flag: int, born: str, store: str) -> None:
    again = _again(replace(PLAIN, system_flag=int(flag), born_host=(born, 1), store_host=(store, 10_911)))
    assert again.plain_body() == b"body"
    assert len(again.offset_message_id) == (56 if ":" in store else 32)


@given(
    host=st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20)),
    physical_offset=st.integers(-(2**63), 2**63 - 1),
)
def test_a_message_of_any_stored_host_has_an_offset_message_id(host: bytes, physical_offset: int) -> None:
    """A broker that is named by a host name stores its address, so that no name stops consumption."""
    is_v6 = len(host) == 20
    flag, store = (int(SystemFlag.STORE_HOST_V6), "::") if is_v6 else (0, "0.0.0.0")
    data = encode_record(replace(PLAIN, physical_offset=physical_offset, system_flag=flag, store_host=(store, 1)))
    stored = data[:_STORE_HOST_AT] + host + data[_STORE_HOST_AT + len(host) :]
    (decoded,) = decode_records(stored)
    spelled = host + physical_offset.to_bytes(8, "big", signed=True)
    assert received(decoded).offset_message_id == spelled.hex().upper()
    assert stored_message(decoded).offset_message_id == spelled.hex().upper()


def test_several_records_follow_each_other_and_know_their_broker() -> None:
    data = b"".join(encode_record(record(physical_offset=offset)) for offset in (0, 200, 400))
    decoded = decode_records(data, "broker-a")
    assert [one.physical_offset for one in decoded] == [0, 200, 400]
    assert {one.broker_name for one in decoded} == {"broker-a"}


@pytest.mark.parametrize("cut", range(1, 110))
def test_a_record_that_ends_anywhere_is_refused(cut: int) -> None:
    data = encode_record(PLAIN)
    with pytest.raises(ProtocolViolation):
        decode_records(data[:-cut])


def test_the_filler_at_the_end_of_a_file_is_no_record() -> None:
    data = bytearray(encode_record(PLAIN))
    data[4:8] = (0xCBD43194).to_bytes(4, "big")
    with pytest.raises(ProtocolViolation, match="magic"):
        decode_records(bytes(data))


def test_a_record_of_length_zero_does_not_read_for_ever() -> None:
    with pytest.raises(ProtocolViolation):
        decode_records(bytes(200))


@pytest.mark.parametrize(
    ("bits", "state"),
    [
        (0, TransactionType.NONE),
        (SystemFlag.PREPARED, TransactionType.PREPARED),
        (SystemFlag.COMMIT | SystemFlag.COMPRESSED, TransactionType.COMMIT),
        (SystemFlag.ROLLBACK, TransactionType.ROLLBACK),
    ],
)
def test_transaction_bits(bits: int, state: TransactionType) -> None:
    assert record(system_flag=int(bits)).transaction_type is state


def test_a_body_that_was_changed_on_the_way_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="CRC"):
        replace(PLAIN, body=b"bodY").plain_body()


def test_properties_in_another_character_set_spoil_neither_reading_nor_writing() -> None:
    data = encode_record(replace(PLAIN, properties={"KEYS": "XXXX", "UNIQ_KEY": "K"})).replace(
        b"XXXX", b"\xff\xfe\xfd\xfc"
    )
    (decoded,) = decode_records(data)
    assert decoded.unique_key == "K"
    assert "\ufffd" in decoded.properties["KEYS"]
    assert encode_record(decoded) == data


def test_what_does_not_fit_a_record_is_refused() -> None:
    with pytest.raises(MalformedInput):
        encode_record(replace(PLAIN, properties={"a": "b" * 40_000}))
    with pytest.raises(MalformedInput):
        encode_record(replace(PLAIN, queue_id=2**40))
    with pytest.raises(MalformedInput):
        encode_record(replace(PLAIN, store_host=("not a host", 1)))


# --------------------------------------------------------------------------- compression

TEXT = b"a rather dull text " * 500


@pytest.mark.parametrize(
    ("bits", "packed"),
    [
        (0, compress_zlib(TEXT)),
        (SystemFlag.COMPRESSION_ZLIB, zlib.compress(TEXT)),
        (SystemFlag.COMPRESSION_ZSTD, zstandard.compress(TEXT)),
        (SystemFlag.COMPRESSION_LZ4, lz4.frame.compress(TEXT)),
    ],
)
def test_every_compression_is_undone_and_its_damage_noticed(bits: int, packed: bytes) -> None:
    flags = int(SystemFlag.COMPRESSED | bits)
    assert record(body=packed, system_flag=flags).plain_body() == TEXT
    for damaged in (packed[:-8], packed[: len(packed) // 2], b"\0" * 40, b""):
        with pytest.raises(ProtocolViolation):
            decompress(damaged, flags)
    with pytest.raises(ProtocolViolation, match="beyond"):
        decompress(packed, flags, maximum_bytes=len(TEXT) - 1)


BOMB = b"\0" * (10 * 1024 * 1024)


@pytest.mark.parametrize(
    ("bits", "pack"),
    [
        (SystemFlag.COMPRESSION_ZLIB, zlib.compress),
        (SystemFlag.COMPRESSION_ZSTD, zstandard.compress),
        (SystemFlag.COMPRESSION_LZ4, lz4.frame.compress),
    ],
)
def test_a_decompression_bomb_stops_at_the_bound(bits: int, pack: object) -> None:
    packed = pack(BOMB)  # type: ignore[operator]  # three functions of untyped and typed packages
    with pytest.raises(ProtocolViolation, match="beyond"):
        decompress(packed, int(SystemFlag.COMPRESSED | bits), maximum_bytes=4 * 1024 * 1024)


def test_a_tiny_body_may_not_become_a_huge_one() -> None:
    packed = zstandard.compress(b"\0" * (8 * 1024 * 1024))
    assert len(packed) < 1_024
    with pytest.raises(ProtocolViolation, match="beyond"):
        decompress(packed, int(SystemFlag.COMPRESSED | SystemFlag.COMPRESSION_ZSTD))


@pytest.mark.parametrize("bits", [SystemFlag.COMPRESSION_ZSTD, SystemFlag.COMPRESSION_LZ4, SystemFlag.COMPRESSION_ZLIB])
def test_the_largest_message_of_a_default_broker_is_no_bomb_however_dull_it_is(bits: int) -> None:
    pack = {
        SystemFlag.COMPRESSION_ZSTD: zstandard.compress,
        SystemFlag.COMPRESSION_LZ4: lz4.frame.compress,
        SystemFlag.COMPRESSION_ZLIB: zlib.compress,
    }
    body = b" " * (4 * 1024 * 1024)
    assert decompress(pack[SystemFlag(bits)](body), int(SystemFlag.COMPRESSED | bits)) == body


@pytest.mark.parametrize("module", sorted(OPTIONAL_MODULES))
def test_a_missing_package_is_named_in_one_line_however_many_bodies_need_it(
    module: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_package(monkeypatch, module)
    kind = {"zstandard": SystemFlag.COMPRESSION_ZSTD, "lz4": SystemFlag.COMPRESSION_LZ4}[module]
    for _ in range(3):
        with pytest.raises(MissingDependency, match=f"pip install {module}"):
            decompress(b"x", int(kind))
    assert [f"pip install {module}" in line.getMessage() for line in caplog.records] == [True]


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(ProtocolViolation):
        decompress(b"x", 0x500)
    assert compression.MAXIMUM_BODY_BYTES >= 4 * 1024 * 1024


# --------------------------------------------------------------------------- batches


def test_a_batch_survives_both_ways() -> None:
    entries = [BatchEntry(body=b"", properties={}), BatchEntry(body=b"two", properties={"TAGS": "é"}, flag=-1)]
    assert decode_batch(encode_batch(entries)) == entries
    with pytest.raises(ProtocolViolation):
        decode_batch(encode_batch(entries)[:-1])


def test_a_consumer_takes_an_inner_batch_for_one_message() -> None:
    body = encode_batch(
        [BatchEntry(body=b"one", properties={"A": "1"}), BatchEntry(body=b"two", properties={"A": "2"})]
    )
    flags = int(SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP)
    stored = [PLAIN, record(body=body, system_flag=flags, queue_offset=10)]
    ends = {"nextBeginOffset": "12", "minOffset": "0", "maxOffset": "12"}
    answer = Command(code=ResponseCode.SUCCESS, fields=ends, body=b"".join(map(encode_record, stored)))
    plain, *members = read_pull_answer(answer, MessageQueue(topic="Orders", broker_name="b", queue_id=0)).records
    assert plain.plain_body() == PLAIN.plain_body()
    assert [(one.queue_offset, one.plain_body(), one.properties["A"]) for one in members] == [
        (10, b"one", "1"),
        (11, b"two", "2"),
    ]


# --------------------------------------------------------------------------- as evidence


def test_a_half_is_shown_under_the_topic_its_consumers_see() -> None:
    properties = {"REAL_TOPIC": "Orders", "PGROUP": "PG", "TRANSACTION_CHECK_TIMES": "3"}
    for topic in (HALF_TOPIC, DISCARD_TOPIC):
        half = stored_message(record(topic=topic, properties=properties))
        assert (half.topic, half.real_topic, half.producer_group, half.check_times) == (topic, "Orders", "PG", 3)
    retry = stored_message(record(topic="%RETRY%CG", properties={"RETRY_TOPIC": "Orders"}))
    assert (retry.real_topic, retry.check_times) == ("Orders", None)


def test_a_property_that_should_be_a_number_is_not_trusted() -> None:
    for text in ("x", "٣", "-1", "1.5", ""):
        assert stored_message(record(properties={"TRANSACTION_CHECK_TIMES": text})).check_times is None


def test_a_compressed_message_weighs_in_a_cache_what_its_plain_body_does() -> None:
    body = b"0" * 1_000_000
    plain, packed = record(body=body), record(body=compress_zlib(body), system_flag=int(SystemFlag.COMPRESSED))
    assert received(packed).size_bytes == received(plain).size_bytes == plain.size_bytes >= len(body)
