"""One audit's output during a verification. Everything in the folder is suspect, so reading raises no error."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.audit.statement.confined import DOCUMENT_BYTES_MAX, ConfinedFolder, suspect_json
from reconciler.audit.statement.document import FOLDER, StatementFile

#: Words of a report about a file that exists and differs from the signed digest.
ALTERED = "altered: its SHA-256 is not the signed one"


@dataclass(slots=True)
class VerifiedFolder:
    """One OUT, or a folder with statements alone."""

    place: ConfinedFolder
    #: Beginning of the files' names, relative to the folder that the user named. It is "" or ends with "/".
    shown: str
    statements: list[StatementFile] = field(default_factory=list)
    #: Statements whose signature holds.
    signed: list[StatementFile] = field(default_factory=list)
    #: Statements that list the outputs in this folder.
    belonging: list[StatementFile] = field(default_factory=list)
    result: Mapping[str, Any] | None = None
    _described: dict[str, tuple[int, str] | None] = field(default_factory=dict)

    def name(self, relative: str) -> str:
        """Returns the name of a file of the folder for people."""
        return f"{self.shown}{relative}"

    def name_of(self, statement: StatementFile) -> str:
        """Returns the name of a statement of the folder for people."""
        return self.name(statement.path.relative_to(self.place.path).as_posix())

    @property
    def has_statements(self) -> bool:
        """True if the folder has statements, as an audit's output does."""
        return self.place.kind(FOLDER) == "folder"

    def described(self, relative: object) -> tuple[int, str] | None:
        """Returns size and SHA-256 of a file. The file is read once. None: the file is missing or not read."""
        if not isinstance(relative, str):
            return None
        if relative not in self._described:
            self._described[relative] = self._describe(relative)
        return self._described[relative]

    def _describe(self, relative: str) -> tuple[int, str] | None:
        try:
            with self.place.open(relative) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                return file.tell(), sha256
        except OSError:
            return None

    def why_it_differs(self, relative: str) -> str:
        """Says why a file differs from the signed digest."""
        try:
            self.place.open(relative).close()
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            return error.strerror or str(error)
        return ALTERED

    def read(self, relative: str) -> bytes | None:
        """Reads a document of the folder. None: the document is missing or not read."""
        try:
            return self.place.read(relative, DOCUMENT_BYTES_MAX)
        except OSError:
            return None

    def load_result(self) -> None:
        """Reads result.json, if the file is a JSON object."""
        try:
            found = suspect_json(self.read("result.json") or b"")
        except ValueError:
            return
        self.result = found if isinstance(found, dict) else None


def outputs_of(statement: StatementFile) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yields path, size and SHA-256 of every output that a statement lists."""
    outputs = statement.document.get("outputs")
    for one in outputs if isinstance(outputs, list) else []:
        if isinstance(one, dict) and isinstance(one.get("path"), str):
            size = one.get("bytes")
            yield one["path"], (size if isinstance(size, int) else -1, str(one.get("sha256")))
