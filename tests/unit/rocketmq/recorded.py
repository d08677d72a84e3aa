"""Frames recorded from real brokers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reconciler.rocketmq.wire.frame import decode_frame
from reconciler.rocketmq.wire.record import MAGIC_V1, MAGIC_V2

FOLDER = Path(__file__).resolve().parents[2] / "frames"


@dataclass(frozen=True, kw_only=True)
class RecordedFrame:
    """One frame with its length word."""

    source: str
    direction: str
    what: str
    data: bytes


@cache
def recorded_frames() -> tuple[RecordedFrame, ...]:
    """All of them."""
    frames = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            frames.append(
                RecordedFrame(source=path.stem, direction=row["dir"], what=row["what"], data=bytes.fromhex(row["hex"]))
            )
    return tuple(frames)


@cache
def recorded_record_bodies() -> tuple[bytes, ...]:
    """Bodies of frames that hold stored records."""
    bodies = []
    for frame in recorded_frames():
        body = decode_frame(frame.data[4:]).body
        if int.from_bytes(body[4:8], "big") in (MAGIC_V1, MAGIC_V2):
            bodies.append(body)
    return tuple(bodies)
