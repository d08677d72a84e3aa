"""Reads the manifest of a history and checks that every entry exists once, is unaltered, and follows the entry before.

The reconciler wrote the folder (contract/manifest.py). check.py reads the rounds afterwards. A bad history raises no
error. Each problem becomes a line of a list, so that one run reports all problems.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs as arrow_fs

from reconciler.audit.places import bytes_at
from reconciler.contract.history_row import HISTORY_STREAMS, HISTORY_VERSION, PREFIXES
from reconciler.contract.manifest import HistoryFile, canonical_json, digest_of, entry_name, kept_from, manifest_folder

_ENTRY_NAME = re.compile(r"\d{12}\.json", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_STREAMS = {stream.name: stream for stream in HISTORY_STREAMS}
#: Largest number of problems, because a broken chain of a million entries must not make a million lines.
PROBLEMS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChain:
    """Content of a manifest after its newest entry."""

    environment: str
    #: Number and SHA-256 of the newest entry. They are 0 and "" for an empty history.
    sequence: int
    digest: str
    #: UTC day as YYYY-MM-DD. Rows before this day were retired on purpose.
    kept_from: str | None
    #: Path -> file, for all files that entries have added and not removed.
    files: Mapping[str, HistoryFile]
    problems: tuple[str, ...]
    #: Number of the last entry that an older audit has verified. Reading began after this entry. 0: all entries were
    #: read.
    read_from: int = 0


@dataclass(slots=True)
class _Reading:
    """State of the chain while it is read."""

    environment: str
    sequence: int = 0
    digest: str = ""
    kept_from: str | None = None
    files: dict[str, HistoryFile] = field(default_factory=dict)
    #: Paths that entries have removed. A second removal of a path is a problem.
    gone: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        """Adds a problem to the list, unless the list has PROBLEMS_MAX problems."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(line)


def read_chain(
    filesystem: arrow_fs.FileSystem, base: str, environment: str, after: HistoryChain | None = None
) -> HistoryChain:
    """Reads every entry of the manifest in order. Raises OSError if the folder cannot be read at all.

    `after` is a verified chain. Then only later entries are read, and the newest entry of `after`, which must be
    unaltered.
    """
    folder = f"{base}/{manifest_folder(environment)}"
    if after is not None:
        return _following(after, environment, lambda name: bytes_at(filesystem, f"{folder}/{name}"))
    names: list[str] | None = None
    if filesystem.get_file_info(folder).type == arrow_fs.FileType.Directory:
        names = [info.base_name for info in filesystem.get_file_info(arrow_fs.FileSelector(folder))]
    return chain_of(environment, names, lambda name: bytes_at(filesystem, f"{folder}/{name}"))


def chain_of(environment: str, names: Sequence[str] | None, read: Callable[[str], bytes]) -> HistoryChain:
    """Reads the chain of a manifest's folder. `names` lists the folder's files in any order.

    `names` None: there is no folder.

    `read` returns an entry's bytes. Errors of `read` pass through.
    """
    reading = _Reading(environment)
    for name in _entry_names(names, reading):
        expected = entry_name(reading.sequence + 1)
        if name != expected:
            reading.note(f"manifest: entry {expected} is missing, {name} follows")
        _take(reading, name, read(name))
    return _chain(reading)


def _following(after: HistoryChain, environment: str, read: Callable[[str], bytes]) -> HistoryChain:
    """Reads entries by name until an entry does not exist. This needs no list of the folder."""
    reading = _Reading(
        environment,
        sequence=after.sequence,
        digest=after.digest,
        kept_from=after.kept_from,
        files=dict(after.files),
    )
    if after.environment != environment:
        reading.note(f"manifest: what an older audit has verified is of environment {after.environment!r}")
    known = entry_name(after.sequence)
    try:
        if digest_of(read(known)) != after.digest:
            reading.note(f"manifest {known}: is not the entry that an older audit has verified: altered, or swapped")
    except FileNotFoundError:
        reading.note(f"manifest: entry {known} is missing, which an older audit has verified")
    else:
        with contextlib.suppress(FileNotFoundError):
            while True:
                name = entry_name(reading.sequence + 1)
                _take(reading, name, read(name))
    return _chain(reading, read_from=after.sequence)


def _chain(reading: _Reading, read_from: int = 0) -> HistoryChain:
    return HistoryChain(
        environment=reading.environment,
        sequence=reading.sequence,
        digest=reading.digest,
        kept_from=reading.kept_from,
        files=reading.files,
        problems=tuple(reading.problems),
        read_from=read_from,
    )


def _entry_names(names: Sequence[str] | None, reading: _Reading) -> list[str]:
    if names is None:
        reading.note(f"history: there is no {manifest_folder(reading.environment)} in it; name the history's folder")
        return []
    found = sorted(name for name in names if _ENTRY_NAME.fullmatch(name))
    if not found:
        reading.note(f"history: {manifest_folder(reading.environment)} has no entry; nothing was ever written")
    return found


def _take(reading: _Reading, name: str, data: bytes) -> None:
    """Checks one entry's form and place in the chain, and takes over the entry's files."""
    previous, before = reading.digest, reading.sequence
    reading.digest, reading.sequence = digest_of(data), int(name[:12])
    document = _document(reading, name, data)
    if document is None:
        return
    if document.get("sequence") != reading.sequence:
        reading.note(f"manifest {name}: says it is entry {document.get('sequence')!r}: doubled or renamed")
    elif before + 1 == reading.sequence and document.get("previous") != previous:
        reading.note(f"manifest {name}: does not follow {entry_name(before)}: one of them was altered")
    if document.get("environment") != reading.environment:
        reading.note(f"manifest {name}: is of environment {document.get('environment')!r}")
    removed, added, kept = document.get("removed", []), document.get("added", []), document.get("kept_from")
    if not isinstance(removed, list) or not isinstance(added, list):
        reading.note(f"manifest {name}: what it adds and removes is no list: altered")
        return
    gone = [str(path) for path in removed]
    for path in gone:
        _remove(reading, name, path)
    for item in added:
        _add(reading, name, item)
    if kept is None:
        return
    try:
        reading.kept_from = max(kept_from(str(kept), gone), reading.kept_from or "")
    except ValueError as error:
        reading.note(f"manifest {name}: removes files of a day that is no date: {error}")


def _document(reading: _Reading, name: str, data: bytes) -> dict[str, Any] | None:
    """Parses the entry. None: the entry cannot be trusted."""
    try:
        document = json.loads(data)
        canonical = canonical_json(document)
    except (ValueError, RecursionError) as error:
        reading.note(f"manifest {name}: no JSON: {error}")
        return None
    if not isinstance(document, dict) or canonical != data:
        reading.note(f"manifest {name}: not in canonical form: altered")
        return None
    version = document.get("version")
    if not isinstance(version, int) or not 1 <= version <= HISTORY_VERSION:
        reading.note(
            f"manifest {name}: version {version!r}, this audit knows up to {HISTORY_VERSION}; use the newer audit"
        )
        return None
    return document


def _remove(reading: _Reading, name: str, path: str) -> None:
    if reading.files.pop(path, None) is None:
        doubled = " a second time" if path in reading.gone else ", which was never added"
        reading.note(f"manifest {name}: removes {path}{doubled}")
    reading.gone.add(path)


def _add(reading: _Reading, name: str, item: Any) -> None:
    try:
        file = HistoryFile.of(item)
    except (TypeError, AttributeError) as error:
        reading.note(f"manifest {name}: a file without all its fields: {error}")
        return
    texts = (file.path, file.stream, file.date, file.sha256)
    numbers = (file.rows, file.size_bytes, file.first_ms, file.last_ms)
    if not all(isinstance(one, str) for one in texts) or not all(isinstance(one, int) for one in numbers):
        reading.note(f"manifest {name}: a file with a field of another type: altered")
        return
    stream = _STREAMS.get(file.stream)
    if stream is None:
        reading.note(f"manifest {name}: {file.path} is of the unknown stream {file.stream!r}; use the newer audit")
        return
    has_prefix = isinstance(file.prefix, int) and 0 <= file.prefix < PREFIXES
    if stream.has_key != has_prefix or (not stream.has_key and file.prefix is not None):
        reading.note(f"manifest {name}: {file.path} has prefix {file.prefix!r}, which does not fit {file.stream}")
    if not _lies_where_it_belongs(file, reading.environment):
        reading.note(f"manifest {name}: {file.path} lies in a folder of other rows")
    if file.path in reading.files:
        reading.note(f"manifest {name}: adds {file.path} a second time")
    reading.files[file.path] = file


def _lies_where_it_belongs(file: HistoryFile, environment: str) -> bool:
    prefix = "" if file.prefix is None else f"prefix={file.prefix:02d}/"
    folder = f"{file.stream}/environment={environment}/date={file.date}/{prefix}"
    is_below = file.path.startswith(folder) and "/" not in file.path.removeprefix(folder)
    return is_below and _DAY.fullmatch(file.date) is not None
