"""The broker's append-only log on disk. The log survives kill -9, because every answer waits until its entries are
written.

The log is a folder of segments such as ``00000001.log``. An entry is ``u32 length | u32 CRC-32 | u8 kind | payload``.
The length counts kind and payload. An entry of kind M is a stored message. An entry of kind S is one change of state as
JSON. An entry of kind A is all state as JSON. Every segment begins with an A, so that old segments can be deleted. The
log does not survive a power cut, because nothing is fsynced. Only the broker's loop uses this module.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.errors import ConfigurationError, MalformedInput

MESSAGE = b"M"
STATE = b"S"
SNAPSHOT = b"A"
_HEAD = struct.Struct(">II")
_LONGEST_ENTRY = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class LogFolder:
    """The log of one broker. A second broker on the same folder is refused."""

    def __init__(self, folder: Path, *, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigurationError(f"the data folder {folder} cannot be used: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigurationError(f"{folder} is in use by another broker") from error
        self._numbers = sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdigit())
        self._last_offsets: dict[int, int] = dict.fromkeys(self._numbers, -1)  # newest record of each segment
        self._reading = 0
        self._file: int | None = None
        self._size = 0
        self._pending: list[bytes] = []

    # -- recovery ----------------------------------------------------------------------------------
    def recover(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields (kind, payload) of every whole entry in order. Cuts off an incomplete entry at the end.

        Raises MalformedInput if an older segment is damaged.
        """
        for number in self._numbers:
            self._reading = number
            path = self._path(number)
            data = path.read_bytes()
            position = 0
            while position < len(data):
                entry = _entry_at(data, position)
                if entry is None:
                    if number != self._numbers[-1]:
                        raise MalformedInput(f"{path}: damaged at byte {position}")
                    logger.warning("log_tail_cut: %s: torn tail of %d bytes cut off", path, len(data) - position)
                    os.truncate(path, position)
                    break
                yield entry
                position += _HEAD.size + 1 + len(entry[1])

    def open(self, snapshot: Mapping[str, Any]) -> None:
        """Begins a new segment for writing, after recovery."""
        self._roll(snapshot)

    # -- writing -----------------------------------------------------------------------------------
    def append_message(self, record: bytes, physical_offset: int) -> None:
        """Appends one message, which is on disk after the next ``flush``."""
        self._append(MESSAGE, record)
        self._last_offsets[self._numbers[-1]] = physical_offset

    def append_state(self, change: Mapping[str, Any]) -> None:
        """Appends one change of state, which is on disk after the next ``flush``."""
        self._append(STATE, json.dumps(change, separators=(",", ":")).encode())

    def _append(self, kind: bytes, payload: bytes) -> None:
        head = _HEAD.pack(1 + len(payload), zlib.crc32(payload, zlib.crc32(kind)))
        self._pending.append(head + kind + payload)

    def flush(self) -> bool:
        """Writes pending entries. Returns True if the segment is full and the caller should call ``roll``.

        Raises OSError if the disk refuses. The file then ends after the last complete flush.
        """
        if not self._pending:
            return False
        data = b"".join(self._pending)
        self._pending.clear()
        try:
            self._write(data)
        except OSError:
            if self._file is not None:
                os.ftruncate(self._file, self._size)
                os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += len(data)
        return self._size >= self._segment_bytes

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise OSError("the log is closed")
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def roll(self, snapshot: Mapping[str, Any]) -> None:
        """Begins the next segment with all state."""
        self.flush()
        self._roll(snapshot)

    def _roll(self, snapshot: Mapping[str, Any]) -> None:
        number = self._numbers[-1] + 1 if self._numbers else 1
        file = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if self._file is not None:
            os.close(self._file)
        self._file = file
        self._size = 0
        self._numbers.append(number)
        self._last_offsets[number] = -1
        self._append(SNAPSHOT, json.dumps(snapshot, separators=(",", ":")).encode())
        self.flush()

    # -- retention ---------------------------------------------------------------------------------
    def note_recovered(self, physical_offset: int) -> None:
        """Records the log offset of the record that was just recovered, so that its segment can be deleted later."""
        self._last_offsets[self._reading] = physical_offset

    def forget_below(self, physical_offset: int) -> None:
        """Deletes segments whose records all lie below this log offset. The newest segment always stays."""
        for number in self._numbers[:-1]:
            if self._last_offsets[number] >= physical_offset:
                break
            self._path(number).unlink(missing_ok=True)
            self._numbers.remove(number)
            del self._last_offsets[number]

    def close(self) -> None:
        """Writes pending entries and releases the folder."""
        if self._file is not None:
            self.flush()
            os.close(self._file)
            self._file = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.log"


def _entry_at(data: bytes, position: int) -> tuple[bytes, bytes] | None:
    if position + _HEAD.size > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    if not 1 <= length <= _LONGEST_ENTRY or start + length > len(data):
        return None
    content = data[start : start + length]
    if zlib.crc32(content) != crc:
        return None
    return content[:1], content[1:]
