"""Where the files that a judgement names lie, and how they are read again: the evidence folder and its history."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pyarrow import fs as arrow_fs

from reconciler.audit.errors import AuditError
from reconciler.audit.places import place_of

#: Paths of history files begin with it, wherever the history lies.
HISTORY_PREFIX = "history/"


@dataclass(frozen=True, slots=True)
class InputFolder:
    """An evidence folder and the history that it names."""

    filesystem: Any
    root: str
    history_filesystem: Any
    history_root: str

    def read(self, path: str) -> bytes:
        """The file's bytes. `path` is as in InputFile. Raises OSError."""
        in_history = path.startswith(HISTORY_PREFIX)
        filesystem, root = (self.history_filesystem, self.history_root) if in_history else (self.filesystem, self.root)
        with filesystem.open_input_file(f"{root}/{path.removeprefix(HISTORY_PREFIX) if in_history else path}") as file:
            data: bytes = file.read()
        return data


def open_inputs(evidence: str, history: str | None = None) -> InputFolder:
    """The folder of an evidence.json; `history` overrides where it says the history lies (it may have been moved).

    Raises AuditError("inputs") where there is no such folder, or it cannot be read.
    """
    try:
        filesystem, root = _opened(evidence)
        if filesystem.get_file_info(root).type != arrow_fs.FileType.Directory:
            raise FileNotFoundError("there is no such folder")
        history = _history_named(filesystem, root) if history is None else place_of(history)
        if "://" in history or history.startswith("/"):
            history_filesystem, history_root = _opened(history)
        else:
            history_filesystem, history_root = filesystem, f"{root}/{history}"
    except (OSError, ValueError) as error:
        raise AuditError(
            "inputs", f"--evidence {evidence}: {error}; name the folder that holds evidence.json"
        ) from error
    return InputFolder(filesystem, root, history_filesystem, history_root)


def _history_named(filesystem: Any, root: str) -> str:
    """The usual place where evidence.json does not say: that the file is altered or missing is told by its digest."""
    try:
        with filesystem.open_input_file(f"{root}/evidence.json") as file:
            document = json.loads(file.read())
    except (FileNotFoundError, ValueError, RecursionError):
        return "history"
    named = document.get("history") if isinstance(document, dict) else None
    return named if isinstance(named, str) and named else "history"


def digest(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _opened(path: str) -> tuple[Any, str]:
    if "://" in path:
        filesystem, root = arrow_fs.FileSystem.from_uri(path)
        return filesystem, root.rstrip("/")
    return arrow_fs.LocalFileSystem(), path.rstrip("/") or "/"
