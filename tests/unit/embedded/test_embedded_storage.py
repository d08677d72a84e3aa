"""The log on disk, recovery, retention and bounds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.clock import ManualClock, SystemClock
from reconciler.embedded.broker import Broker
from reconciler.embedded.families import FAMILIES
from reconciler.embedded.faults import Faults
from reconciler.embedded.layout import BrokerMessage, decode, encode, packed_host, store_timestamp_of
from reconciler.embedded.log_file import MESSAGE, STATE, LogFolder
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings, parse_delay_levels
from reconciler.errors import ConfigurationError, InvalidValue, MalformedInput
from tests.unit.embedded.raw_client import HALF_TOPIC, TOPIC, RawClient, records

SMALL_SEGMENTS = 2_000


@contextmanager
def opened(folder: Path, *, segment_bytes: int = 1 << 20) -> Iterator[tuple[LogFolder, list[tuple[bytes, bytes]]]]:
    log = LogFolder(folder, segment_bytes=segment_bytes)
    try:
        entries = list(log.recover())
        log.open({})
        yield log, entries
    finally:
        log.close()


def payloads(entries: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [payload for kind, payload in entries if kind == MESSAGE]


# -- the log -----------------------------------------------------------------------------------------
def test_entries_come_back_in_order(tmp_path: Path) -> None:
    with opened(tmp_path) as (log, _):
        log.append_message(b"one", 0)
        log.append_state({"t": "x"})
        log.flush()
        log.append_message(b"two", 3)
    with opened(tmp_path) as (_, entries):
        kept = [(kind, payload) for kind, payload in entries if kind in (MESSAGE, STATE)]
        assert kept == [(MESSAGE, b"one"), (STATE, b'{"t":"x"}'), (MESSAGE, b"two")]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_torn_tail_is_cut_off(tmp_path: Path, cut: int) -> None:
    with opened(tmp_path) as (log, _):
        log.append_message(b"whole", 0)
        log.append_message(b"torn", 5)
    (segment,) = tmp_path.glob("*.log")
    os.truncate(segment, segment.stat().st_size - cut)
    with opened(tmp_path) as (log, entries):
        assert payloads(entries) == [b"whole"]
        log.append_message(b"next", 5)
    with opened(tmp_path) as (_, entries):
        assert payloads(entries) == [b"whole", b"next"]


def test_a_flipped_bit_ends_the_tail_and_is_reported_in_the_middle(tmp_path: Path) -> None:
    for text in (b"first segment", b"second segment"):
        with opened(tmp_path) as (log, _):
            log.append_message(text, 0)
    first, second = sorted(tmp_path.glob("*.log"))
    damaged = bytearray(second.read_bytes())
    damaged[-1] ^= 1
    second.write_bytes(damaged)
    with opened(tmp_path) as (_, entries):
        assert payloads(entries) == [b"first segment"]
    damaged = bytearray(first.read_bytes())
    damaged[-1] ^= 1
    first.write_bytes(damaged)
    log = LogFolder(tmp_path, segment_bytes=1 << 20)
    try:
        with pytest.raises(MalformedInput, match=first.name):
            list(log.recover())
    finally:
        log.close()


def test_a_folder_serves_one_broker_at_a_time(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path):
        with pytest.raises(ConfigurationError, match="in use"):
            LogFolder(tmp_path, segment_bytes=1)
        with pytest.raises(ConfigurationError, match="in use"):
            EmbeddedBroker(data=tmp_path).start()
    with EmbeddedBroker(data=tmp_path) as broker, RawClient(broker.address) as client:
        assert client.send_message().code == 0


def test_a_write_that_fails_leaves_whole_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    with opened(tmp_path) as (log, _):
        log.append_message(b"kept", 0)
        log.flush()

        def full(file: int, data: memoryview) -> int:
            if len(data) > 5:
                return real(file, data[:5])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        log.append_message(b"lost", 4)
        with pytest.raises(OSError, match="No space"):
            log.flush()
        monkeypatch.undo()
        log.append_message(b"later", 4)
    with opened(tmp_path) as (_, entries):
        assert payloads(entries) == [b"kept", b"later"]


# -- records -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_records_survive_encoding(host: str) -> None:
    message = BrokerMessage(
        topic="Thema",
        queue_id=3,
        body=b"\x00\x01body",
        born_timestamp_ms=1_700_000_000_001,
        born_host=packed_host(host, 4711),
        properties_text="KEYS\x01ä\x02",
        flag=9,
        sys_flag=8 | (0x10 | 0x20 if ":" in host else 0),
        reconsume_times=2,
        prepared_offset=17,
    )
    message.queue_offset, message.physical_offset, message.store_timestamp_ms = 5, 1 << 40, 1_700_000_000_002
    message.store_host = packed_host(host, 10911)
    record = encode(message)
    again = decode(record)
    for name in BrokerMessage.__slots__:
        if name != "_properties":
            assert getattr(again, name) == getattr(message, name), name
    assert store_timestamp_of(record) == 1_700_000_000_002
    assert len(record) == message.size


def test_delay_levels_are_read_or_refused() -> None:
    assert parse_delay_levels("100ms 1s 2m 1h") == (0.1, 1.0, 120.0, 3600.0)
    for bad in ("", "1", "1x", "s"):
        with pytest.raises(InvalidValue):
            parse_delay_levels(bad)


# -- restart -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", list(FAMILIES))
def test_everything_is_there_after_a_restart(tmp_path: Path, family: str) -> None:
    broker = EmbeddedBroker(family=family, data=tmp_path, settings=BrokerSettings(segment_bytes=SMALL_SEGMENTS))
    with broker, RawClient(broker.address) as client:
        for number in range(30):
            client.send_message(body=b"%d" % number, UNIQ_KEY=f"K{number}", KEYS=f"order-{number}")
        half = client.send_half(UNIQ_KEY="HALF", KEYS="half-order")
        assert client.end(half).code == 0
        client.pull(consumerGroup="CG")
        client.call(15, consumerGroup="CG", topic=TOPIC, queueId=0, commitOffset=12)
        client.call(100, namespace="N", key="K", value="V")
        broker.call(lambda inner: inner.state.delete_topic("BenchmarkTest"))
        before = broker.stored(TOPIC)
        half_topic = HALF_TOPIC if broker.family.has_half_topic else TOPIC
        halves = [message.physical_offset for message in client.found(half_topic, "half-order")]
    with broker, RawClient(broker.address) as client:
        assert [encode(message) for message in broker.stored(TOPIC)] == [encode(message) for message in before]
        assert [message.physical_offset for message in client.found(half_topic, "half-order")] == halves
        assert client.call(14, consumerGroup="CG", topic=TOPIC, queueId=0).fields["offset"] == "12"
        assert client.call(101, namespace="N", key="K").fields["value"] == "V"
        assert client.end(half).code == 0  # still readable, still not idempotent
        reply = client.send_message(body=b"after")
        assert int(reply.fields["queueOffset"]) == len(before) + 1
        assert len({message.physical_offset for message in broker.stored(TOPIC)}) == len(before) + 2


def test_check_progress_and_delays_survive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = BrokerSettings(check_max=5, delay_levels="60s")
    broker = EmbeddedBroker(family="4.9", data=tmp_path, settings=settings, clock=clock)
    with broker, RawClient(broker.address) as client:
        client.send_message()
        client.send_half(UNIQ_KEY="K1")
        client.send_message(body=b"later", DELAY="1")
        broker.settings.retention_seconds = broker.settings.reserved_seconds = 1e12
        clock.advance(3600.0 * 24 * 365 * 60)  # born by the real clock, checked by this one
        broker.check_now()
        assert len(client.found(HALF_TOPIC, "K1")) == 2
    with broker, RawClient(broker.address) as client:
        clock.advance(10.0)
        broker.check_now()
        times = [half.properties.get("TRANSACTION_CHECK_TIMES") for half in client.found(HALF_TOPIC, "K1")]
        assert times == [None, "1", "2"]
        assert [message.body for message in broker.stored(TOPIC)].count(b"later") == 1


# -- retention ---------------------------------------------------------------------------------------
def test_retention_makes_halves_vanish(tmp_path: Path) -> None:
    clock = ManualClock()
    # No check-back in between: it would put the half back as a younger copy.
    settings = BrokerSettings(retention_seconds=100.0, segment_bytes=SMALL_SEGMENTS, check_interval_seconds=3600.0)
    broker = EmbeddedBroker(family="5.x", data=tmp_path, settings=settings, clock=clock)
    with broker, RawClient(broker.address) as client:
        half = client.send_half(UNIQ_KEY="OLD")
        for _ in range(40):
            client.send_message()
        clock.advance(60.0)
        client.send_message(UNIQ_KEY="NEW")
        clock.advance(60.0)
        for _ in range(2):
            broker.call(lambda inner: inner.store.retire())
        assert client.query(HALF_TOPIC, "OLD").code == 22
        gone = client.end(half)
        assert gone.code == 1
        assert gone.remark == "Find prepared transaction message failed"
        assert client.call(31, topic=TOPIC, queueId=0).fields["offset"] == "40"
        assert client.call(14, consumerGroup="CG", topic=TOPIC, queueId=0).code == 22  # no quirk any more
        early = client.pull(offset=0)
        assert (early.code, early.fields["nextBeginOffset"]) == (21, "40")
        assert [message.queue_offset for message in records(client.pull(offset=40).body)] == [40]
        assert sum(path.stat().st_size for path in tmp_path.glob("*.log")) < 10 * SMALL_SEGMENTS
        segments = len(list(tmp_path.glob("*.log")))
    with broker, RawClient(broker.address) as client:
        assert client.call(31, topic=TOPIC, queueId=0).fields["offset"] == "40"
        assert client.call(30, topic=TOPIC, queueId=0).fields["offset"] == "41"
        assert client.query(HALF_TOPIC, "OLD").code == 22
        assert client.send_half(UNIQ_KEY="NEXT").fields["queueOffset"] == "1"
        assert len(list(tmp_path.glob("*.log"))) <= segments + 1


def test_memory_is_bounded_by_count_and_bytes() -> None:
    for settings in (BrokerSettings(max_stored_messages=50), BrokerSettings(max_stored_bytes=50 * 1200)):
        with EmbeddedBroker(settings=settings) as broker, RawClient(broker.address) as client:
            for number in range(200):
                client.send_message(body=b"x" * 1000, KEYS=f"order-{number}")
            assert 40 <= len(broker.stored(TOPIC)) <= 50
            assert client.query(TOPIC, "order-0").code == 22
            assert len(client.found(TOPIC, "order-199")) == 1
            assert client.call(30, topic=TOPIC, queueId=0).fields["offset"] == "200"


def test_a_broken_disk_refuses_sends_and_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(data=tmp_path) as broker, RawClient(broker.address) as client:
        client.send_message(body=b"kept")

        def full(_file: int, _data: memoryview) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("reconciler.embedded.log_file.os.write", full)
        with pytest.raises((ConnectionError, AssertionError)):
            client.send_message(body=b"lost")
        monkeypatch.undo()
        with RawClient(broker.address) as again:
            assert again.send_message().code == 14
    with EmbeddedBroker(data=tmp_path) as broker:
        assert [message.body for message in broker.stored(TOPIC)] == [b"kept"]


def test_a_data_folder_that_cannot_be_opened_is_an_error_of_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file"):
        Broker(
            family=FAMILIES["5.x"],
            settings=BrokerSettings(),
            faults=Faults(),
            clock=SystemClock(),
            data=tmp_path / "file",
        )
