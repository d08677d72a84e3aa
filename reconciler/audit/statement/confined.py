"""Reads a folder from a stranger. Only files in the folder are read, and only within bounds.

Paths are opened folder by folder, and no link is followed. Only regular files are read, because a FIFO or device would
keep a reader waiting. The user names the folder itself, whose path may contain links.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Literal

#: Largest size of a file that is read.
FILE_BYTES_MAX = 64 * 1024**3
#: Largest size of a JSON document. A list of half a million inputs fits.
DOCUMENT_BYTES_MAX = 128 * 1024**2
#: Largest number of levels in a JSON document. Documents of an audit have a few levels.
DOCUMENT_LEVELS_MAX = 32
#: Largest number of levels of folders that are read. Folders of an audit have at most six levels.
FOLDER_LEVELS_MAX = 16
#: Largest number of names in all folders together.
ENTRIES_MAX = 2_000_000

Kind = Literal["file", "folder", "link", "other"]

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
WHAT = {"folder": "is a folder", "link": "is a symbolic link: not followed", "other": "is no regular file: not read"}


class Refused(OSError):
    """Error for a path that exists or is named, but is not read. The message has the reason."""


@dataclass(frozen=True, slots=True)
class ConfinedFolder:
    """Folder below `root`. Every path is relative to it, with "/"."""

    root: Path
    #: Path from `root` to the folder. It is "" for the root, and has no "/" at either end.
    inner: str = ""

    @property
    def path(self) -> Path:
        """Path of the folder, for messages."""
        return self.root / self.inner

    def below(self, path: str) -> ConfinedFolder:
        """Makes the object for a folder in this folder. The inner folder may be missing."""
        return ConfinedFolder(self.root, f"{self.inner}/{path}" if self.inner else path)

    def kind(self, path: str) -> Kind | None:
        """Finds the kind of a path. None: the path does not exist, or may not be read."""
        try:
            *folders, name = self._parts(path)
            with _opened_folder(self.root, folders) as folder:
                return _kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except (OSError, ValueError):
            return None

    def open(self, path: str) -> BufferedIOBase:
        """Opens a file. Raises Refused for a path that is not read. Raises OSError, such as FileNotFoundError."""
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
        """Reads the whole file. Raises the errors of `open`. Raises Refused for more than `bytes_max` bytes."""
        with self.open(path) as file:
            return read_bounded(file, bytes_max)

    def entries(self, path: str = "") -> list[tuple[str, Kind]]:
        """Lists the sorted names in a folder, with the kind of each. Empty: there is no such folder. Raises OSError."""
        found: list[tuple[str, Kind]] = []
        whole = "/".join(part for part in (self.inner, path) if part)
        folders = _parts(whole) if whole else []
        with suppress(FileNotFoundError, Refused), _opened_folder(self.root, folders) as folder:
            for name in os.listdir(folder):
                with suppress(FileNotFoundError):
                    found.append((name, _kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)))
        return sorted(found)

    def walk(self, path: str = "") -> Iterator[tuple[str, Kind]]:
        """Yields all entries below a path, except folders. If a folder is too deep, the folder itself is yielded.

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
    """Reads an open file to the end. Raises Refused for more than `bytes_max` bytes."""
    size = file.seek(0, os.SEEK_END)
    if size > bytes_max:
        raise Refused(f"holds {size:,} bytes, more than the {bytes_max:,} that are read at once")
    file.seek(0)
    return file.read(size)


@contextmanager
def _opened_folder(root: Path, parts: list[str]) -> Iterator[int]:
    """Opens the folder to which the parts lead. Raises Refused if a part is no folder."""
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


def suspect_json(data: bytes) -> Any:
    """Parses JSON. Raises ValueError for any other text.

    Also raises ValueError for NaN and too deep nesting, which no document of an audit has.
    """
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
