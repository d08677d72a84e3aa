"""A folder from a stranger: what lies in it is read, within bounds, and nothing else.

Paths are opened folder by folder, without following a link; only regular files are read, so that no FIFO or device
keeps a reader waiting. The folder itself is the one that the user named, wherever that leads.
"""

from __future__ import annotations

import json
import math
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Literal

from reconciler.audit.errors import AuditError

#: A larger file is refused.
FILE_BYTES_MAX = 64 * 1024**3
#: A JSON document: a list of half a million inputs fits.
DOCUMENT_BYTES_MAX = 128 * 1024**2
#: Levels of nesting in a JSON document; our own have a few.
DOCUMENT_LEVELS_MAX = 32
#: Folders in folders that are looked into; ours end at six.
FOLDER_LEVELS_MAX = 16
#: What a file may make its reader ask for: a few hundred bytes can say that they unpack to terabytes.
MEMORY_BYTES_MAX = 4 * 1024**3
#: Names in all folders together.
ENTRIES_MAX = 2_000_000

Kind = Literal["file", "folder", "link", "other"]

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
WHAT = {"folder": "is a folder", "link": "is a symbolic link: not followed", "other": "is no regular file: not read"}


class Refused(OSError):
    """Something is there, or is named, that is not read; the message says why."""


@dataclass(frozen=True, slots=True)
class ConfinedFolder:
    """A folder below `root`; every path is relative to it, with "/"."""

    root: Path
    #: From `root` to the folder; "" or without "/" at its ends.
    inner: str = ""

    @property
    def path(self) -> Path:
        """For messages."""
        return self.root / self.inner

    def below(self, path: str) -> ConfinedFolder:
        """A folder in it, which need not be there."""
        return ConfinedFolder(self.root, f"{self.inner}/{path}" if self.inner else path)

    def kind(self, path: str) -> Kind | None:
        """What is there; None: nothing, or nothing that may be looked at."""
        try:
            *folders, name = self._parts(path)
            with _opened_folder(self.root, folders) as folder:
                return _kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except (OSError, ValueError):
            return None

    def open(self, path: str) -> BufferedIOBase:
        """Raises FileNotFoundError; Refused for what is not read; OSError."""
        *folders, name = self._parts(path)
        with _opened_folder(self.root, folders) as folder:
            found = _kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            if found != "file":
                raise Refused(WHAT[found])
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
        file = os.fdopen(descriptor, "rb")
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES_MAX:
            file.close()
            raise Refused(f"holds {status.st_size:,} bytes, more than the {FILE_BYTES_MAX:,} that are read")
        return file

    def read(self, path: str, bytes_max: int) -> bytes:
        """The whole file. Raises as `open` does, and Refused for a larger one."""
        with self.open(path) as file:
            return read_bounded(file, bytes_max)

    def entries(self, path: str = "") -> list[tuple[str, Kind]]:
        """Names in a folder and what they are, sorted; none where there is no such folder. Raises OSError."""
        found: list[tuple[str, Kind]] = []
        whole = "/".join(part for part in (self.inner, path) if part)
        folders = _parts(whole) if whole else []
        with suppress(FileNotFoundError, Refused), _opened_folder(self.root, folders) as folder:
            for name in os.listdir(folder):
                with suppress(FileNotFoundError):
                    found.append((name, _kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)))
        return sorted(found)

    def walk(self, path: str = "") -> Iterator[tuple[str, Kind]]:
        """All entries below, folders replaced by what they hold; folders that lie too deep are yielded themselves.

        Raises OSError.
        """
        waiting, seen = [path], 0
        while waiting:
            folder = waiting.pop()
            for name, kind in self.entries(folder):
                place = f"{folder}/{name}" if folder else name
                seen += 1
                if seen > ENTRIES_MAX:
                    raise Refused(f"{self.path} holds more than {ENTRIES_MAX:,} names")
                if kind == "folder" and place.count("/") < FOLDER_LEVELS_MAX:
                    waiting.append(place)
                else:
                    yield place, kind

    def _parts(self, path: str) -> list[str]:
        return _parts(f"{self.inner}/{path}" if self.inner else path)


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise Refused("leads out of the folder: not read")
    try:
        if b"\0" not in os.fsencode(path):
            return parts
    except UnicodeEncodeError:
        pass
    raise Refused("is no path: not read")


def read_bounded(file: BufferedIOBase, bytes_max: int) -> bytes:
    """The whole of a file that is open at its beginning. Raises Refused for a larger one."""
    size = file.seek(0, os.SEEK_END)
    if size > bytes_max:
        raise Refused(f"holds {size:,} bytes, more than the {bytes_max:,} that are read at once")
    file.seek(0)
    return file.read(size)


@contextmanager
def _opened_folder(root: Path, parts: list[str]) -> Iterator[int]:
    """A descriptor of the folder that the parts lead to. Raises Refused where one of them is no folder."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            found = _kind(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode)
            if found != "folder":
                raise Refused(f"lies in {part}, which {WHAT.get(found, 'is a file')}")
            inner = os.open(part, _FOLDER_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Makes this process run out of memory before its machine does. Raises AuditError("inputs") where it has."""
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (before, hard, MEMORY_BYTES_MAX) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    except MemoryError as error:
        what = f"what lies in it takes more than {min(bounds) // 1024**2:,} MiB of memory to look at"
        raise AuditError("inputs", f"{what}: no output of an audit does") from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def suspect_json(data: bytes) -> Any:
    """Raises ValueError for what is no JSON, or none that a document of ours could be: NaN, nested too deep."""
    try:
        document = json.loads(data, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    level: list[Any] = [[document]]
    for _ in range(DOCUMENT_LEVELS_MAX + 1):
        nested = (inner for one in level for inner in (one.values() if isinstance(one, dict) else one))
        level = [inner for inner in nested if isinstance(inner, (dict, list))]
        if not level:
            return document
    raise ValueError(f"nested deeper than {DOCUMENT_LEVELS_MAX} levels")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")
