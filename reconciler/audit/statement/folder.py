"""One audit's output while it is verified: everything in it is suspect, so that reading never fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from reconciler.audit.statement.compare import SignedChecksums
from reconciler.audit.statement.document import StatementFile


@dataclass(slots=True)
class VerifiedFolder:
    """One OUT, or a folder of statements alone."""

    path: Path
    #: How its files are called: relative to what the user named; "" or ends with "/".
    shown: str
    statements: list[StatementFile] = field(default_factory=list)
    #: Those whose signature holds.
    signed: list[StatementFile] = field(default_factory=list)
    #: Those whose outputs these are.
    belonging: list[StatementFile] = field(default_factory=list)
    result: Mapping[str, Any] | None = None
    #: Only if they are as signed.
    checksums: SignedChecksums | None = None
    _described: dict[str, tuple[int, str] | None] = field(default_factory=dict)

    def name(self, relative: str) -> str:
        """A file of it, for people."""
        return f"{self.shown}{relative}"

    def name_of(self, statement: StatementFile) -> str:
        """A statement of it, for people."""
        return self.name(statement.path.relative_to(self.path).as_posix())

    def described(self, relative: object) -> tuple[int, str] | None:
        """Bytes and SHA-256 of a file, read once; None for a missing one."""
        if not isinstance(relative, str):
            return None
        if relative not in self._described:
            self._described[relative] = self._describe(relative)
        return self._described[relative]

    def _describe(self, relative: str) -> tuple[int, str] | None:
        place = self.place(relative)
        if place is None:
            return None
        try:
            with place.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                return file.tell(), sha256
        except (OSError, ValueError):
            return None

    def place(self, relative: str) -> Path | None:
        """None for a path that leads out of the folder."""
        path = PurePosixPath(relative)
        return None if path.is_absolute() or ".." in path.parts else self.path / relative

    def read(self, relative: str) -> bytes | None:
        """None for a missing file, and for a path that leads out of the folder."""
        place = self.place(relative)
        try:
            return None if place is None else place.read_bytes()
        except (OSError, ValueError):
            return None

    def load_result(self) -> None:
        """Reads result.json, where it is a JSON object."""
        try:
            found = json.loads(self.read("result.json") or b"")
        except (ValueError, RecursionError):
            return
        self.result = found if isinstance(found, dict) else None


def outputs_of(statement: StatementFile) -> Iterator[tuple[str, tuple[int, str]]]:
    """Path, and bytes and SHA-256, of every output that a statement lists."""
    outputs = statement.document.get("outputs")
    for one in outputs if isinstance(outputs, list) else []:
        if isinstance(one, dict) and isinstance(one.get("path"), str):
            size = one.get("bytes")
            yield one["path"], (size if isinstance(size, int) else -1, str(one.get("sha256")))
