"""The spool's frames: with any byte torn off or flipped, no wrong row is read and no whole row is lost unnoticed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.errors import MalformedInput
from reconciler.history.batch import PackedKeys, RowBatch, decode, encode
from reconciler.history.segment import Broken, Frame, SegmentWriter, frame_of, read_frames
from tests.examples import examples

payloads = st.lists(st.binary(max_size=60), max_size=6)


def whole(data: bytes) -> list[bytes]:
    return [piece.payload for piece in read_frames(data) if isinstance(piece, Frame)]


def damage(data: bytes) -> int:
    return sum(piece.size_bytes for piece in read_frames(data) if isinstance(piece, Broken) and not piece.is_tail)


@settings(max_examples=examples(300))
@given(written=payloads, data=st.data())
def test_a_write_torn_at_any_byte_loses_only_the_frame_that_was_being_written(
    written: list[bytes], data: st.DataObject
) -> None:
    frames = [frame_of(payload) for payload in written]
    stream = b"".join(frames)
    cut = data.draw(st.integers(0, len(stream)))
    ends = [sum(map(len, frames[: n + 1])) for n in range(len(frames))]
    assert whole(stream[:cut]) == [payload for payload, end in zip(written, ends, strict=True) if end <= cut]
    assert damage(stream[:cut]) == 0


@settings(max_examples=examples(500))
@given(written=payloads.filter(bool), data=st.data())
def test_any_flipped_bit_costs_one_frame_and_is_noticed(written: list[bytes], data: st.DataObject) -> None:
    frames = [frame_of(payload) for payload in written]
    stream = bytearray(b"".join(frames))
    position = data.draw(st.integers(0, len(stream) - 1))
    stream[position] ^= 1 << data.draw(st.integers(0, 7))
    ends = [sum(map(len, frames[: n + 1])) for n in range(len(frames))]
    hit = next(n for n, end in enumerate(ends) if position < end)
    read = whole(bytes(stream))
    assert read == written[:hit] + written[hit + 1 :]
    broken = [piece for piece in read_frames(bytes(stream)) if isinstance(piece, Broken)]
    assert [piece.size_bytes for piece in broken] == [len(frames[hit])]
    # Only the last frame can be taken for an unfinished write, where its length was hit.
    assert not broken[0].is_tail or hit == len(frames) - 1


@pytest.mark.parametrize("strays", [b"x", b"xy", b"xyz" * 9])
def test_stray_bytes_between_two_frames_cost_neither(strays: bytes) -> None:
    stream = frame_of(b"first") + strays + frame_of(b"second")
    assert (whole(stream), damage(stream)) == ([b"first", b"second"], len(strays))


def test_a_payload_that_looks_like_a_frame_is_not_taken_for_one() -> None:
    inner = frame_of(b"inner")
    assert whole(frame_of(inner) + frame_of(b"next")) == [inner, b"next"]


def test_a_failed_append_leaves_no_half_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    writer = SegmentWriter(tmp_path / "a.open")
    writer.append(b"first")
    real = os.write

    def half(descriptor: int, data: memoryview) -> int:
        real(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            writer.append(b"second")
    writer.append(b"third")
    writer.sync()
    assert [p.payload for p in read_frames(writer.path.read_bytes()) if isinstance(p, Frame)] == [b"first", b"third"]
    writer.close()


keys = st.lists(st.binary(min_size=16, max_size=32), max_size=20)


@given(members=keys, shard=st.integers(0, 1023), at_ms=st.integers(0, 2**62))
def test_batches_come_back_as_they_were(members: list[bytes], shard: int, at_ms: int) -> None:
    batch = RowBatch(
        stream="pending",
        shared={"topic": "T", "consumer_group": "grüppe", "shard": shard, "at_ms": at_ms},
        keys=PackedKeys.of(members),
        columns={"first_seen_ms": [n - 5 for n in range(len(members))]},
    )
    [read] = decode(encode([batch]))
    assert (read, list(read.keys)) == (batch, members)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_record_are_refused_with_one_kind_of_error(data: bytes) -> None:
    with suppress(MalformedInput):
        assert sum(map(len, decode(data))) >= 0


def test_a_record_of_an_unknown_stream_or_without_a_column_is_refused() -> None:
    good = RowBatch(
        stream="left",
        shared={"topic": "T", "consumer_group": "G", "shard": 1, "at_ms": 1, "reason": "MATCHED", "detail": None},
        keys=PackedKeys.of([b"k" * 16]),
    )
    data = encode([good])
    assert decode(data) == [good]
    for wrong in (data.replace(b'"left"', b'"lift"'), data.replace(b'"shard"', b'"shart"'), data[:-1], data + b"x"):
        with pytest.raises(MalformedInput):
            decode(wrong)
