"""Durable local spool. It holds rows from the capture until the rows are sealed into Parquet.

The file ``<spool>/<writer>/<segment>.open`` is being written. A file ``<segment>.closed`` waits to be sealed. A living
writer holds the lock on the file ``lock`` (flock). The kernel releases the lock at every kind of death. Another process
adopts the segments of a writer whose lock is free. Raises OSError. Raises SpoolFull beyond the bound.

Rejected: SQLite (benchmarks/spool.py). With a WAL, one damaged byte after a kill -9 drops every later record without a
trace, because recovery takes the damaged byte for the end of the log. With a rollback journal a durable pass is five
times slower.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path

from ulid import ULID

from reconciler.history.segment import SegmentWriter, cut_torn_end

LOCK_NAME = "lock"
_OPEN, _CLOSED = ".open", ".closed"
#: Prefix of a folder's name until its lock is held.
_NAMELESS = ".new-"
#: Length at which a segment is closed and sealed early. The limit bounds the memory of sealing.
SEGMENT_BYTES_MAX = 32 * 1024 * 1024


class SpoolFull(OSError):
    """The spool has reached its bound, because sealing has failed for a long time."""

    def __init__(self, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(
            errno.ENOSPC,
            f"the history's spool holds {size_bytes} of {size_bytes_max} bytes: see why nothing can be written to "
            "history.path, or raise history.spool_max_mebibytes",
        )


class WriterFolder:
    """A folder of the spool whose lock this process holds."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    @staticmethod
    def create(spool: Path, writer: str) -> WriterFolder:
        """Makes the folder under a temporary name and takes the lock before the renaming.

        So no process can adopt the folder in between.
        """
        nameless = spool / f"{_NAMELESS}{writer}"
        nameless.mkdir(parents=True, exist_ok=True)
        taken = WriterFolder.take(nameless)
        if taken is None:
            raise OSError(errno.EBUSY, "another process has this writer's name", str(nameless))
        try:
            nameless.rename(spool / writer)
            taken.folder = spool / writer
            sync_folder(spool)
        except OSError:
            taken.release()  # otherwise no process could take the lock, not even a later try
            raise
        return taken

    @staticmethod
    def take(folder: Path) -> WriterFolder | None:
        """Takes the lock of the folder. None: the folder's writer lives, or the folder does not exist."""
        try:
            lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:  # no locks on this file system, or its server is away: tried again once per second
            os.close(lock)
            raise
        # Its writer may have removed folder and lock between our two calls. Then we hold a lock without a name.
        if not (folder / LOCK_NAME).exists():
            os.close(lock)
            return None
        return WriterFolder(folder, lock)

    def segments(self) -> list[Path]:
        """Lists closed segments from the oldest to the newest, in the order of their ULIDs."""
        return sorted(self.folder.glob(f"*{_CLOSED}"))

    def close_open_ones(self, *, whole: Container[Path] = ()) -> None:
        """Closes segments that a dead writer or this writer left open.

        A segment may end with a torn record, unless `whole` names it. A torn record is cut off here. So in a closed
        segment all bytes outside of records are damage.
        """
        for path in sorted(self.folder.glob(f"*{_OPEN}")):
            if path not in whole:
                cut_torn_end(path)
            path.rename(path.with_suffix(_CLOSED))
        sync_folder(self.folder)

    def leave(self) -> None:
        """Releases the lock. Removes the folder if the folder holds no segment."""
        try:
            if not any(path.suffix in {_OPEN, _CLOSED} for path in self.folder.iterdir()):
                (self.folder / LOCK_NAME).unlink(missing_ok=True)
                with suppress(OSError):
                    self.folder.rmdir()
        finally:
            self.release()

    def release(self) -> None:
        """Releases the lock. The segments stay for the next process that takes the folder."""
        os.close(self._lock)


def adoptable(spool: Path) -> list[WriterFolder]:
    """Locks folders of dead writers and closes the segments in them. Raises OSError.

    After an error no folder is locked.
    """
    found: list[WriterFolder] = []
    folders = spool.iterdir() if spool.is_dir() else ()
    for folder in sorted(path for path in folders if path.is_dir() and not path.name.startswith(_NAMELESS)):
        try:
            taken = WriterFolder.take(folder)
            if taken is not None:
                found.append(taken)
                taken.close_open_ones()
        except OSError:
            # An unused lock would keep the segments from every process until this process ends.
            for one in found:
                one.release()
            raise
    return found


class Spool:
    """Spool of this writer. One thread calls `append`, `sync` and `rotate`. Any thread may call `closed` and `done`."""

    def __init__(
        self, folder: WriterFolder, *, size_bytes_max: int, segment_bytes_max: int = SEGMENT_BYTES_MAX
    ) -> None:
        self._folder = folder
        self._size_bytes_max = size_bytes_max
        self._segment_bytes_max = segment_bytes_max
        self._writer: SegmentWriter | None = None
        #: True: a closed segment still has the name of an open segment, because the renaming failed.
        self._has_strays = False
        #: Segments that were closed without an error. No record in such a segment is torn.
        self._whole: set[Path] = set()
        self._lock = threading.Lock()
        self._waiting_bytes = sum(path.stat().st_size for path in folder.segments())

    @property
    def size_bytes(self) -> int:
        """Number of bytes that wait to be sealed."""
        writer = self._writer
        return self._waiting_bytes + (writer.size_bytes if writer is not None else 0)

    def append(self, payload: bytes) -> None:
        """Appends one payload. The payload is durable after `sync`. Raises SpoolFull and OSError.

        After an error the payload is not in the spool.
        """
        if self.size_bytes + len(payload) > self._size_bytes_max:
            raise SpoolFull(self.size_bytes, self._size_bytes_max)
        if self._writer is not None and not self._writer.is_sound:
            self.rotate()
        if self._writer is None:
            self._writer = SegmentWriter(self._folder.folder / f"{ULID()}{_OPEN}")
            sync_folder(self._folder.folder)
        self._writer.append(payload)

    def sync(self) -> None:
        """Makes appended payloads survive a loss of power. Raises OSError.

        After an error no such payload counts as written.
        """
        if self._writer is None:
            return
        self._writer.sync()
        if self._writer.size_bytes >= self._segment_bytes_max:
            self.rotate()

    def rotate(self) -> None:
        """Closes the open segment, so that the segment can be sealed.

        Does nothing if there is no segment, or if the segment is empty.
        """
        writer = self._writer
        if writer is not None and (writer.size_bytes or not writer.is_sound):
            with suppress(OSError):
                writer.sync()
            self._writer = None
            self._has_strays = True
            if writer.is_sound:
                self._whole.add(writer.path)
            writer.close()
            with self._lock:
                self._waiting_bytes += writer.size_bytes
        if self._has_strays and self._writer is None:
            self._folder.close_open_ones(whole=self._whole)
            self._whole.clear()
            self._has_strays = False

    def closed(self) -> Sequence[Path]:
        """Lists the segments that wait to be sealed, from the oldest to the newest."""
        return self._folder.segments()

    def done(self, segment: Path) -> None:
        """Deletes a segment whose rows are in the history."""
        size_bytes = segment.stat().st_size
        segment.unlink()
        with self._lock:
            self._waiting_bytes = max(0, self._waiting_bytes - size_bytes)

    def is_gone(self) -> bool:
        """Whether nothing can be written, because somebody removed the folder, or mounted another one in its place."""
        try:
            return not (self._folder.folder / LOCK_NAME).exists()
        except OSError:
            return False

    def release(self) -> None:
        """Gives up the folder, with its segments. If the folder comes back, any writer adopts the segments."""
        self._folder.release()

    def close(self) -> None:
        """Closes the spool. If segments are not sealed, the next writer adopts the segments."""
        with suppress(OSError):
            self.rotate()
        self._folder.leave()


def sync_folder(folder: Path) -> None:
    """Makes new and moved names in the folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
