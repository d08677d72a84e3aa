"""One append-only file of the spool. Each of its frames is whole or is recognised as broken.

A frame consists of magic, length of the payload, CRC-32 of length and payload, and payload. The numbers are
little-endian. A crash in the middle of a write leaves a torn tail. The torn tail is cut off before the segment is
closed. A broken frame before a whole one, or anywhere in a closed segment, is damage. Damage is counted, and reading
continues at the next frame with a right CRC.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

MAGIC = b"\xc5HSp"
_FRAME = Struct("<4sII")
#: Largest size of a payload. Writers refuse a larger payload, and readers take a larger payload for damage.
PAYLOAD_BYTES_MAX = 512 * 1024 * 1024


def frame_of(payload: bytes) -> bytes:
    """Makes one frame. Raises ValueError for a payload that is too long."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a history record of {len(payload)} bytes; at most {PAYLOAD_BYTES_MAX}")
    return _FRAME.pack(MAGIC, len(payload), _check(payload)) + payload


def _check(payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(len(payload).to_bytes(4, "little")))


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole payload."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Broken:
    """Bytes from `start` on that are no whole frame.

    `is_tail` True: the bytes are an unfinished write at the file's end.
    """

    start: int
    size_bytes: int
    is_tail: bool


def read_frames(data: bytes) -> Iterator[Frame | Broken]:
    """Yields all frames in order. Bytes between frames are yielded as Broken."""
    position = 0
    while position < len(data):
        payload = _frame_at(data, position)
        if payload is not None:
            yield Frame(payload)
            position += _FRAME.size + len(payload)
            continue
        following = _next_frame(data, position + 1)
        end = len(data) if following is None else following
        yield Broken(position, end - position, is_tail=following is None and _is_unfinished(data, position))
        position = end


def _frame_at(data: bytes, position: int) -> bytes | None:
    if len(data) - position < _FRAME.size:
        return None
    magic, length, check = _FRAME.unpack_from(data, position)
    start = position + _FRAME.size
    if magic != MAGIC or length > PAYLOAD_BYTES_MAX or start + length > len(data):
        return None
    payload = data[start : start + length]
    return payload if _check(payload) == check else None


def _next_frame(data: bytes, position: int) -> int | None:
    while (position := data.find(MAGIC, position)) >= 0:
        if _frame_at(data, position) is not None:
            return position
        position += 1
    return None


def _is_unfinished(data: bytes, position: int) -> bool:
    """True if the bytes are an interrupted write.

    Then they are the beginning of a frame that extends past the file's end.
    """
    rest = data[position : position + _FRAME.size]
    if len(rest) < _FRAME.size:
        return _FRAME.pack(MAGIC, 0, 0)[: min(len(rest), len(MAGIC))] == rest[: len(MAGIC)]
    magic, length, _ = _FRAME.unpack(rest)
    return bool(magic == MAGIC and length <= PAYLOAD_BYTES_MAX and position + _FRAME.size + length > len(data))


def cut_torn_end(path: Path) -> None:
    """Cuts off the record that a dead writer had begun. Such a record was never durable. Raises OSError."""
    for piece in read_frames(path.read_bytes()):
        if isinstance(piece, Broken) and piece.is_tail:
            with path.open("r+b") as file:
                file.truncate(piece.start)
                os.fsync(file.fileno())


class SegmentWriter:
    """Writer of one segment. Confined to one thread. Raises OSError. A failed append leaves no incomplete frame."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self.size_bytes = 0
        #: False: after an error the content of the file is in doubt. Then the caller closes the file and continues in a
        #: new file.
        self.is_sound = True

    def append(self, payload: bytes) -> None:
        """Writes one frame into the file. The frame is durable after `sync`."""
        frame = memoryview(frame_of(payload))
        try:
            written = 0
            while written < len(frame):
                written += os.write(self._descriptor, frame[written:])
        except OSError:
            self._cut_back()
            raise
        self.size_bytes += len(frame)

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.size_bytes)
        except OSError:
            self.is_sound = False

    def sync(self) -> None:
        """Syncs appended frames.

        After an error the state of the frames is unknown (fsyncgate), so the segment is given up.
        """
        try:
            os.fdatasync(self._descriptor)
        except OSError:
            self.is_sound = False
            raise

    def close(self) -> None:
        """Closes the file. The caller has to call `sync` before."""
        os.close(self._descriptor)
