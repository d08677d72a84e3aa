"""The manifest of a history as plain data: the chain that makes a missing, doubled or altered file visible.

``<history>/manifest/environment=<env>/<sequence, 12 digits>.json``, one entry per write. Numbers begin at 1 and have no
hole. A writer makes each entry by an exclusive link, so that two writers never take the same number. An entry is
canonical JSON (sorted keys, no spaces, UTF-8, one newline at the end) and names the SHA-256 of the entry before it (""
for the first). The files of a history are those that an entry added and no later entry removed. Any other file in the
folders does not belong to the history.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import date, timedelta
from typing import Any

from reconciler.contract.history_row import HISTORY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFile:
    """One Parquet file."""

    #: Relative to the history's folder, with "/".
    path: str
    stream: str
    #: YYYY-MM-DD, UTC.
    date: str
    #: None for streams without a key.
    prefix: int | None
    rows: int
    size_bytes: int
    sha256: str
    #: Smallest and largest at_ms of the file's rows.
    first_ms: int
    last_ms: int

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> HistoryFile:
        """Reads a file from an entry's JSON, without the fields of newer writers. Raises TypeError for a missing
        field."""
        return cls(**{name: value for name, value in item.items() if name in _FILE_FIELDS})


_DATE = re.compile(r"/date=(\d{4}-\d{2}-\d{2})/")
_FILE_FIELDS = frozenset(f.name for f in fields(HistoryFile))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One write, with the files that it added and removed."""

    environment: str
    sequence: int
    #: SHA-256 of the entry before, in hexadecimal. "" for the first entry.
    previous: str
    #: "seal" (new rows), "compact" (the same rows in fewer files) or "retire" (rows past their retention).
    action: str
    #: Name of the writing process, for people.
    writer: str
    written_at_ms: int
    added: tuple[HistoryFile, ...] = ()
    #: Paths.
    removed: tuple[str, ...] = ()
    #: For "retire": rows before this UTC day (YYYY-MM-DD) were removed on purpose.
    kept_from: str | None = None
    version: int = HISTORY_VERSION
    #: Unknown fields of newer writers. Such fields are kept, so that the digest can be computed again.
    extra: Mapping[str, Any] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Returns the bytes of the entry's file. The next entry names their SHA-256."""
        document = asdict(self)
        document.update(document.pop("extra"))
        return canonical_json(document)


def canonical_json(document: object) -> bytes:
    """Returns the bytes of an entry in the only form that may be stored."""
    return (json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def digest_of(entry: bytes) -> str:
    """Returns the digest that the next entry has as `previous`."""
    return hashlib.sha256(entry).hexdigest()


def kept_from(entry_says: str, removed: Iterable[str]) -> str:
    """Returns the first day whose rows are kept after a "retire" entry: the day after the newest day that the entry
    removed.

    The day in the entry itself is only an upper bound. If the writer's clock was years ahead for a moment, all later
    rows would otherwise count as deleted for ever.
    """
    days = [found[1] for path in removed if (found := _DATE.search(path))]
    if not days:
        return entry_says
    return min(entry_says, (date.fromisoformat(max(days)) + timedelta(days=1)).isoformat())


def manifest_folder(environment: str) -> str:
    """Returns the folder of the manifest, relative to the history's folder."""
    return f"manifest/environment={environment}"


def entry_name(sequence: int) -> str:
    """Returns the file name of an entry."""
    return f"{sequence:012d}.json"
