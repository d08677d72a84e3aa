"""The folder of audits on the disk: its outputs, whether they have changed, and the report of an output.

No part of a request becomes a path. A requested name is searched among the names that were read. Links are not
followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

#: Maximum number of names of the folder that are read.
NAMES_MAX = 10_000
#: Maximum number of audits that are considered, which is a year of days. The audits with the last names count.
AUDITS_MAX = 400
#: Maximum number of files of one audit that are compared to notice a change. The same limit holds for files of its
#: statements.
FILES_MAX = 2_000
REPORT = "report.html"
REPORT_BYTES_MAX = 16 * 1024**2
#: The problem of a link.
LINK = "is a symbolic link: not followed"
#: Folder of an output's statements.
STATEMENTS = "statement"

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One name in the folder."""

    name: str
    #: Text that changes when a file of the audit is altered, added or removed, and when the key changes.
    identity: str = ""
    #: Reason why the name is not examined. Empty: the name is a folder.
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderLook:
    """Contents of the folder."""

    #: Names of the folder in descending order, because most of them are days.
    entries: Sequence[AuditEntry] = ()
    #: Number of names beyond AUDITS_MAX.
    left_out: int = 0
    #: Reason why the folder or the key is unusable. Empty: both are usable.
    problem: str = ""


def look_at(folder: str, public_key: str) -> FolderLook:
    """Reads the folder. Names that begin with a dot are left out. So are files beside the outputs."""
    try:
        key = _identity(os.stat(public_key))
    except (OSError, ValueError) as error:
        return FolderLook(problem=f"web.audits_public_key = {public_key}: {_reason(error)}")
    try:
        with _opened(folder, follow=True) as opened:
            names = sorted(_names(opened), reverse=True)
            if STATEMENTS in names:
                return FolderLook(problem=f"web.audits_folder = {folder}: this is one audit; name the folder above it")
            entries = tuple(_entry(opened, name, key) for name in names[:AUDITS_MAX])
            return FolderLook(entries=entries, left_out=len(names[AUDITS_MAX:]))
    except (OSError, ValueError) as error:
        return FolderLook(problem=f"web.audits_folder = {folder}: {_reason(error)}")


def read_report(folder: str, name: str, sha256: str) -> bytes | None:
    """Reads the report of an audit, if the report has the signed digest. Raises OSError if the file cannot be read."""
    with _opened(folder, follow=True) as above, _opened(name, within=above) as opened:
        file = os.open(REPORT, _FILE_FLAGS, dir_fd=opened)
        with os.fdopen(file, "rb") as report:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_size > REPORT_BYTES_MAX:
                return None
            found = report.read(REPORT_BYTES_MAX)
    return found if hashlib.sha256(found).hexdigest() == sha256 else None


def _names(opened: int) -> Iterator[str]:
    with os.scandir(opened) as found:
        for _, one in zip(range(NAMES_MAX), found, strict=False):
            if not one.name.startswith(".") and (one.is_symlink() or one.is_dir(follow_symlinks=False)):
                yield one.name


def _entry(folder: int, name: str, key: str) -> AuditEntry:
    try:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return AuditEntry(name=name, problem=LINK)
        seen = hashlib.sha256(key.encode())
        with _opened(name, within=folder) as opened:
            for line in _files(opened):
                seen.update(line)
        return AuditEntry(name=name, identity=seen.hexdigest())
    except OSError as error:
        return AuditEntry(name=name, problem=_reason(error))


def _files(opened: int) -> Iterator[bytes]:
    """Yields lines that change when the files of an output or of its statements change. Evidence is left out, because
    it may consist of a million files."""
    for place in (".", STATEMENTS):
        try:
            with _opened(place, within=opened) as folder, os.scandir(folder) as found:
                yield f"{_identity(os.fstat(folder))}\n".encode()
                for name in sorted(one.name for _, one in zip(range(FILES_MAX), found, strict=False)):
                    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    yield f"{name}\0{_identity(about)}\n".encode("utf-8", "surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            yield b"none\n"


def _identity(about: os.stat_result) -> str:
    return f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino} {about.st_mode}"


@contextmanager
def _opened(path: str, *, within: int | None = None, follow: bool = False) -> Iterator[int]:
    """Opens a folder and yields its descriptor. Raises OSError."""
    descriptor = os.open(path, _FOLDER_FLAGS & ~os.O_NOFOLLOW if follow else _FOLDER_FLAGS, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
