"""Remembers beside the spool which entry of the chain was written last.

The spool may lie on another disk than the history. If the folder of the history is lost, or its file system is not
mounted, the chain in its place lacks the remembered entry.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from reconciler.contract.manifest import digest_of, entry_name, manifest_folder


def head_file(spool: Path) -> Path:
    """Returns the file of the remembered entry. `spool`: the folder of one environment."""
    return spool.with_name(f"{spool.name}.head.json")


def missing_entry(spool: Path, root: Path, environment: str) -> str | None:
    """Returns the problem if the chain lacks the remembered entry. None: no entry is missing. Raises OSError."""
    known = _read(head_file(spool))
    if known is None:
        return None
    sequence, digest = known
    name = entry_name(sequence)
    with suppress(FileNotFoundError, NotADirectoryError):
        if digest_of((root / manifest_folder(environment) / name).read_bytes()) == digest:
            return None
    return (
        f"{name} is gone: its folder was lost, or another one lies there; "
        f"put it back, or delete {head_file(spool)} to continue without it"
    )


def remember_head(spool: Path, root: Path, environment: str, *, sequence: int) -> None:
    """Remembers the newest entry of the chain. Keeps an entry that the chain lacks, so that its loss stays known.

    An error is passed over, because the history does not need the file.
    """
    with suppress(OSError):
        if missing_entry(spool, root, environment) is not None:
            return
        digest = digest_of((root / manifest_folder(environment) / entry_name(sequence)).read_bytes())
        temporary = head_file(spool).with_suffix(".tmp")
        temporary.write_text(json.dumps({"sequence": sequence, "digest": digest}), encoding="ascii")
        temporary.replace(head_file(spool))


def _read(file: Path) -> tuple[int, str] | None:
    """Returns number and digest of the entry. None for a file that is missing, or that a crash has damaged."""
    try:
        found = json.loads(file.read_bytes())
        return int(found["sequence"]), str(found["digest"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
