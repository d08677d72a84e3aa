"""Damaged frames and records raise ProtocolViolation or decode to something else; nothing else ever happens."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.errors import PermanentError, ProtocolViolation
from reconciler.evidence.stored_message import stored_message
from reconciler.rocketmq.wire.batch import decode_batch
from reconciler.rocketmq.wire.frame import Command, FrameReader, decode_frame
from reconciler.rocketmq.wire.record import decode_records
from reconciler.rocketmq.wire.tolerant_json import parse_tolerant_json
from tests.examples import examples
from tests.unit.rocketmq.recorded import recorded_frames, recorded_record_bodies

#: Each example damages its input so many times: 4 tests x 60 examples x 50 = 12 000 mutations.
ROUNDS = 50
EXAMPLES = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])

FRAMES = [frame.data for frame in recorded_frames()]
BODIES = [*recorded_record_bodies()]


def damage(data: bytes, chance: random.Random) -> bytes:
    """One to four of: a changed byte, a changed 32-bit word, a hole, an insertion, a cut, a repetition."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] = chance.randrange(256)
        elif kind == 1:
            changed[at : at + 4] = chance.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 255)).to_bytes(4, "big")
        elif kind == 2:
            del changed[at : at + chance.randint(1, 20)]
        elif kind == 3:
            changed[at:at] = chance.randbytes(chance.randint(1, 20))
        elif kind == 4:
            del changed[at:]
        else:
            changed += changed[at : at + chance.randint(1, 60)]
    return bytes(changed)


@EXAMPLES
@given(data=st.sampled_from(FRAMES), seed=st.integers(0, 2**32))
def test_damaged_frames_cost_an_error_and_nothing_else(data: bytes, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        try:
            command = decode_frame(damage(data[4:], chance))
        except ProtocolViolation:
            continue
        assert isinstance(command, Command)


@EXAMPLES
@given(data=st.lists(st.sampled_from(FRAMES), min_size=1, max_size=4), seed=st.integers(0, 2**32))
def test_a_damaged_stream_costs_an_error_and_nothing_else(data: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        stream = damage(b"".join(data), chance)
        reader = FrameReader()
        cut = chance.randrange(len(stream) + 1)
        try:
            reader.feed(stream[:cut])
            reader.feed(stream[cut:])
        except ProtocolViolation:
            continue


@EXAMPLES
@given(data=st.sampled_from(BODIES), seed=st.integers(0, 2**32))
def test_damaged_records_cost_an_error_and_nothing_else(data: bytes, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        try:
            for record in decode_records(damage(data, chance)):
                stored_message(record)
                decode_batch(record.body)
        except PermanentError:
            continue


@EXAMPLES
@given(
    data=st.sampled_from([frame for frame in FRAMES if b"brokerAddrs" in frame or b"clientID" in frame]),
    seed=st.integers(0, 2**32),
)
def test_damaged_json_bodies_cost_an_error_and_nothing_else(data: bytes, seed: int) -> None:
    chance = random.Random(seed)
    body = decode_frame(data[4:]).body
    for _ in range(ROUNDS):
        try:
            parse_tolerant_json(damage(body, chance))
        except ProtocolViolation:
            continue


@given(st.binary(max_size=300))
def test_noise_is_no_frame_no_record_and_no_batch(noise: bytes) -> None:
    for decode in (decode_frame, decode_records, decode_batch, parse_tolerant_json):
        try:
            decode(noise)
        except ProtocolViolation:
            continue
