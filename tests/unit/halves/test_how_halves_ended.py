"""Committed, rolled back, delivered twice: counted from places in the log, each half once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.errors import ProtocolViolation
from reconciler.halves.ended import OffsetBits
from reconciler.halves.log_walk import LogHalves
from reconciler.halves.outcomes import HalfOutcomes, HalfPlaces, property_of
from reconciler.rocketmq.wire.codes import SystemFlag
from reconciler.rocketmq.wire.record import decode_heads, decode_records
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import record

PAIR = ("ORDERS", "shop")


def properties(key: str, *, asked: int = 0) -> bytes:
    text = f"UNIQ_KEY\x01{key}\x02REAL_TOPIC\x01ORDERS\x02PGROUP\x01shop\x02"
    return (text + (f"TRANSACTION_CHECK_TIMES\x01{asked}\x02" if asked else "")).encode()


@pytest.mark.parametrize(
    ("copies", "ended", "committed", "expected"),
    [
        pytest.param([("A", 0)], [0], [100], HalfOutcomes(halves=1, committed=1), id="committed"),
        pytest.param([("A", 0)], [0], [], HalfOutcomes(halves=1, rolled_back=1), id="rolled back"),
        pytest.param([("A", 0)], [], [], HalfOutcomes(halves=1), id="open"),
        pytest.param([("A", 0)], [], [100], HalfOutcomes(halves=1, committed=1), id="its end is not visible yet"),
        pytest.param(
            [("A", 0)], [0], [100, 100], HalfOutcomes(halves=1, committed=1, committed_again=1), id="delivered twice"
        ),
        pytest.param(
            [("A", 0), ("B", 0), ("A", 1)],
            [2],
            [120],
            HalfOutcomes(halves=2, committed=1),
            id="committed when asked",
        ),
        pytest.param(
            [("A", 0), ("A", 1)], [0, 1], [110], HalfOutcomes(halves=1, committed=1), id="ended twice, committed once"
        ),
        pytest.param(
            [("A", 0), ("A", 1)],
            [0],
            [100, 110],
            HalfOutcomes(halves=1, committed=1, committed_again=1),
            id="both copies were committed",
        ),
        pytest.param([("A", 0), ("A", 1)], [1], [], HalfOutcomes(halves=1, rolled_back=1), id="rolled back when asked"),
        pytest.param([("A", 1)], [0], [], None, id="sent before the time that was asked for"),
        pytest.param([("A", 0)], [0], [7, 101, 999], HalfOutcomes(halves=1, rolled_back=1), id="others of the topic"),
    ],
)
def test_each_half_counts_once_by_what_became_of_any_of_its_copies(
    copies: list[tuple[str, int]], ended: list[int], committed: list[int], expected: HalfOutcomes | None
) -> None:
    """Copies have the offsets 50, 51, ... and the places 100, 110, ..."""
    places, ends = HalfPlaces(), OffsetBits(0, 1_000)
    for number, (key, asked) in enumerate(copies):
        places.add(50 + number, 100 + 10 * number, properties(key, asked=asked))
    for number in ended:
        ends.add(50 + number)
    for place in committed:
        places.add_committed(place)
    assert places.topics == {"ORDERS"}
    assert places.outcomes(ends) == ({} if expected is None else {PAIR: expected})


def test_without_op_records_nothing_counts_as_rolled_back() -> None:
    places = HalfPlaces()
    places.add(0, 100, properties("A"))
    assert places.outcomes(None) == {PAIR: HalfOutcomes(halves=1)}


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (b"PGROUP\x01shop\x02TAGS\x01a\x02", b"shop"),
        (b"TAGS\x01a\x02PGROUP\x01shop", b"shop"),
        (b"XPGROUP\x01other\x02TAGS\x01PGROUP", b""),
        (b"", b""),
    ],
)
def test_a_property_is_found_where_it_begins(stored: bytes, value: bytes) -> None:
    assert property_of(stored, b"\x02PGROUP\x01") == value


def test_a_head_says_of_a_record_what_the_whole_says() -> None:
    stored = [record(topic="T" * length, body=b"x" * length, queue_offset=length) for length in (1, 40, 120, 200)]
    stored += [
        replace(
            stored[0],
            prepared_transaction_offset=77,
            system_flag=born | store | SystemFlag.COMMIT,
            born_host=born_host,
            store_host=store_host,
        )
        for born, born_host in ((0, ("10.0.0.1", 1)), (SystemFlag.BORN_HOST_V6, ("::1", 1)))
        for store, store_host in ((0, ("10.0.0.2", 2)), (SystemFlag.STORE_HOST_V6, ("::2", 2)))
    ]
    data = b"".join(map(encode_record, stored))
    heads, whole = decode_heads(data), decode_records(data)
    for head, one in zip(heads, whole, strict=True):
        assert head.queue_offset == one.queue_offset
        assert head.physical_offset == one.physical_offset
        assert head.system_flag == one.system_flag
        assert head.store_timestamp_ms == one.store_timestamp_ms
        assert head.prepared_transaction_offset == one.prepared_transaction_offset
        assert head.properties == getattr(one.properties, "raw", None)
    for end in (1, 50, len(data) - 1):
        with pytest.raises(ProtocolViolation):
            decode_heads(data[:end])


HALF, COMMIT, ROLLBACK = SystemFlag.PREPARED, SystemFlag.COMMIT, SystemFlag.ROLLBACK


@pytest.mark.parametrize(
    ("log", "left"),
    [
        pytest.param([(HALF, 100, 0)], [100], id="open"),
        pytest.param([(HALF, 100, 0), (COMMIT, 110, 100)], [], id="committed"),
        pytest.param([(ROLLBACK, 110, 100), (HALF, 100, 0)], [], id="its end was read before it"),
        pytest.param([(HALF, 100, 0), (COMMIT, 110, 90)], [100], id="the end of another one"),
        pytest.param([(HALF, 100, 0), (0, 110, 100)], [100], id="an ordinary message says nothing"),
    ],
)
def test_a_half_of_the_log_is_open_while_no_outcome_names_its_place(
    log: list[tuple[int, int, int]], left: list[int]
) -> None:
    halves = LogHalves()
    for flag, place, names in log:
        halves.add(record(system_flag=int(flag), physical_offset=place, prepared_transaction_offset=names))
    assert [copy.commit_log_offset for copy in halves.open()] == left
    later = LogHalves(since_ms=2 * 10**12)
    for flag, place, names in log:
        later.add(record(system_flag=int(flag), physical_offset=place, prepared_transaction_offset=names))
    assert (later.open(), later.outcomes) == ([], {})
