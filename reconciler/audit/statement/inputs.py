"""Reads again the files that a judgement names. The evidence folder and the history may have moved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Protocol

from pyarrow import fs as arrow_fs

from reconciler.audit.errors import AuditError
from reconciler.audit.places import open_folder, place_of
from reconciler.audit.statement.confined import (
    DOCUMENT_BYTES_MAX,
    ConfinedFolder,
    Kind,
    Refused,
    read_bounded,
    suspect_json,
)

#: Beginning of the paths of history files in a list of inputs.
HISTORY_PREFIX = "history/"


class Place(Protocol):
    """Folder that can be read. Paths in the folder are relative, with "/"."""

    def open(self, path: str) -> BufferedIOBase:
        """Opens a file. Raises OSError."""

    def walk(self, path: str = "") -> Iterator[tuple[str, Kind]]:
        """Yields everything below a path, except folders. Raises OSError."""

    def below(self, path: str) -> Place:
        """Makes the object for a folder in this folder. The inner folder may be missing."""


@dataclass(frozen=True, slots=True)
class NamedFolder:
    """Folder or URL that the user named. Arrow's file system reads the files."""

    filesystem: Any
    root: str

    def below(self, path: str) -> NamedFolder:
        """Makes the object for a folder in this folder. The inner folder may be missing."""
        return NamedFolder(self.filesystem, f"{self.root}/{path}")

    def open(self, path: str) -> BufferedIOBase:
        """Opens a file. Raises OSError."""
        opened: BufferedIOBase = self.filesystem.open_input_file(f"{self.root}/{path}")
        return opened

    def walk(self, path: str = "") -> Iterator[tuple[str, Kind]]:
        """Yields everything below a path, except folders. Raises OSError."""
        selector = arrow_fs.FileSelector(f"{self.root}/{path}".rstrip("/"), allow_not_found=True, recursive=True)
        for info in self.filesystem.get_file_info(selector):
            if info.type == arrow_fs.FileType.File:
                yield info.path.removeprefix(f"{self.root}/"), "file"


@dataclass(frozen=True, slots=True)
class InputFolder:
    """Evidence folder and its history."""

    evidence: Place
    #: Folder of the history. None: the history is elsewhere, and no option names the history.
    history: Place | None
    #: Place of the history that evidence.json names.
    history_said: str

    def has(self, path: str) -> bool:
        """True if the place of the file is known. `path` is as in InputFile."""
        return self.history is not None or not path.startswith(HISTORY_PREFIX)

    def open(self, path: str) -> BufferedIOBase:
        """Opens a file. Raises OSError."""
        if not path.startswith(HISTORY_PREFIX):
            return self.evidence.open(path)
        if self.history is None:
            raise Refused("lies in a history that the command was not given: --history")
        return self.history.open(path.removeprefix(HISTORY_PREFIX))

    def read(self, path: str, bytes_max: int) -> bytes:
        """Reads the file's bytes. Raises OSError. Raises Refused for more than `bytes_max` bytes."""
        with self.open(path) as file:
            return read_bounded(file, bytes_max)

    def digest(self, path: str) -> str:
        """Computes the file's SHA-256 as hexadecimal digits. Raises OSError."""
        with self.open(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def suspect_inputs(evidence: ConfinedFolder | str, history: str | None = None) -> InputFolder:
    """Opens evidence from a stranger.

    Only folders that the user named are opened, and no place that the evidence names. Only confined.py reads a local
    folder. A URL is read only because the user gave the URL. A history outside of the evidence is read only at
    `history`. Raises AuditError("inputs") for a folder that does not exist or cannot be read.
    """
    with _refused_input(str(evidence.path) if isinstance(evidence, ConfinedFolder) else evidence):
        folder = _suspect(evidence) if isinstance(evidence, str) else evidence
        said = _named_history(folder)
        place: Place | None = None
        if history is not None:
            with _refused_input(history, "--history", "name the folder where the history lies now"):
                place = _suspect(history)
        elif "://" not in said and not said.startswith("/") and ".." not in said.split("/"):
            place = folder.below(said.rstrip("/"))
        return InputFolder(folder, place, said)


@contextmanager
def _refused_input(
    place: str, option: str = "--evidence", remedy: str = "name the folder that holds evidence.json"
) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise AuditError("inputs", f"{option} {place}: {error}; {remedy}") from error


def _suspect(place: str) -> Place:
    folder = _named(place)
    if folder.filesystem.get_file_info(folder.root).type != arrow_fs.FileType.Directory:
        raise FileNotFoundError("there is no such folder")
    return folder if "://" in place else ConfinedFolder(Path(place))


def _named(place: str) -> NamedFolder:
    filesystem, root = open_folder(place_of(place))
    return NamedFolder(filesystem, root.rstrip("/"))


def _named_history(evidence: Place) -> str:
    """Reads the place of the history from evidence.json. Without a place there, returns the usual place.

    A digest shows an altered evidence.json.
    """
    try:
        with evidence.open("evidence.json") as file:
            document = suspect_json(read_bounded(file, DOCUMENT_BYTES_MAX))
    except (OSError, ValueError):
        return "history"
    named = document.get("history") if isinstance(document, dict) else None
    return named if isinstance(named, str) and named else "history"


def digest(data: bytes) -> str:
    """Computes SHA-256 as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
