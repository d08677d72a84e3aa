"""Reads new entries of the manifest, and appends entries by an exclusive link. Raises OSError.

Several writers share one chain. If a writer loses the race for a number, the writer reads the winner's entry, checks
that its own entry still makes sense, and takes the next number. So an entry removes only files that are still listed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ulid import ULID

from reconciler.clock import Clock
from reconciler.contract.manifest import (
    HistoryFile,
    ManifestEntry,
    canonical_json,
    digest_of,
    entry_name,
    kept_from,
    manifest_folder,
)
from reconciler.errors import TransientError
from reconciler.history.spool import sync_folder
from reconciler.history.store import TEMPORARY, make_folder

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(\d{12})\.json")
_ENTRY_FIELDS = frozenset(f.name for f in fields(ManifestEntry)) - {"extra"}
APPEND_TRIES_MAX = 200
#: Extra field of a "seal" entry. It names the spool's segment, so that no segment is sealed twice.
SEGMENT = "segment"


class ChainContended(TransientError):
    """Error of an append: other writers were quicker in each try. The next pass tries again."""


class ManifestChain:
    """One environment's chain, shared by the threads of one process."""

    def __init__(self, root: Path, environment: str, *, writer: str, clock: Clock) -> None:
        self._root = root
        self._environment = environment
        self._writer = writer
        self._clock = clock
        self._folder = root / manifest_folder(environment)
        self._lock = threading.RLock()
        self._sequence = 0
        self._digest = ""
        self._files: dict[str, HistoryFile] = {}
        self._removed: dict[str, int] = {}
        self._segments: set[str] = set()
        #: Device and inode of the folder whose entries were read.
        self._folder_id: tuple[int, int] | None = None
        self.kept_from: str | None = None
        #: Damages of the chain, one line per damage. They are reported, and writing continues.
        self.problems: list[str] = []

    @property
    def sequence(self) -> int:
        """Number of the newest entry that was read. 0: no entry was read."""
        return self._sequence

    def files(self) -> Mapping[str, HistoryFile]:
        """Maps the path of each file of the history to the file."""
        with self._lock:
            return dict(self._files)

    def removed(self) -> Mapping[str, int]:
        """Maps the path of each removed file to the time of the removal, in milliseconds."""
        with self._lock:
            return dict(self._removed)

    def forget_removed(self, path: str) -> None:
        """Forgets a removed file. The caller has deleted the file."""
        with self._lock:
            self._removed.pop(path, None)

    def has_segment(self, segment: str) -> bool:
        """True if an entry has sealed the segment."""
        with self._lock:
            return segment in self._segments

    def refresh(self) -> None:
        """Reads the entries that were added since the last call.

        If the folder was lost, or another one lies in its place, all its entries are read, as by a process that starts.
        """
        with self._lock:
            known = (self._sequence, self._digest)
            is_another = self._sequence > 0 and not self._is_same_folder()
            if is_another:
                self._forget_all()
            newest = self._newest()
            self._folder_id = self._identity()
            while self._sequence < newest or (self._folder / entry_name(self._sequence + 1)).exists():
                self._read(self._sequence + 1)
                is_another = is_another and known != (self._sequence, self._digest)
            if is_another:
                self._note_problem(f"{entry_name(known[0])} is gone: its folder was lost, or another one lies there")

    def _is_same_folder(self) -> bool:
        return self._identity() == self._folder_id and (self._folder / entry_name(self._sequence)).exists()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._folder.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _forget_all(self) -> None:
        self._sequence, self._digest, self.kept_from = 0, "", None
        self._files.clear()
        self._removed.clear()
        self._segments.clear()

    def _newest(self) -> int:
        """Finds the newest number in the folder before the first reading, so that a hole is not taken for the end.

        Returns 0 once entries were read.
        """
        if self._sequence or not self._folder.is_dir():
            return 0
        return max((int(m[1]) for name in os.listdir(self._folder) if (m := _NAME.fullmatch(name))), default=0)

    def _read(self, sequence: int) -> None:
        name = entry_name(sequence)
        before, self._sequence = self._digest, sequence
        try:
            data = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return self._note_problem(f"{name} is missing")
        self._digest = digest_of(data)
        try:
            document = json.loads(data)
            entry = _entry_of(document)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return self._note_problem(f"{name} cannot be read: {error}")
        if entry.previous != before or entry.sequence != sequence or canonical_json(document) != data:
            self._note_problem(f"{name} does not follow the entry before it, or was altered")
        return self._take(entry)

    def _note_problem(self, problem: str) -> None:
        self.problems.append(problem)
        logger.error("history_manifest_damaged", extra={"environment": self._environment, "problem": problem})

    def _take(self, entry: ManifestEntry) -> None:
        for path in entry.removed:
            self._files.pop(path, None)
            self._removed[path] = entry.written_at_ms
        for file in entry.added:
            self._files[file.path] = file
        if entry.kept_from is not None:
            self.kept_from = max(kept_from(entry.kept_from, entry.removed), self.kept_from or "")
        segment = entry.extra.get(SEGMENT)
        if isinstance(segment, str):
            self._segments.add(segment)

    def append(
        self,
        action: str,
        *,
        added: Sequence[HistoryFile] = (),
        removed: Sequence[str] = (),
        kept_from: str | None = None,
        segment: str | None = None,
        still: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Writes one durable entry. Returns False and writes nothing if `still` is false after another writer's entry.

        Raises ChainContended and OSError.
        """
        make_folder(self._folder, below=self._root)
        with self._lock:
            for _ in range(APPEND_TRIES_MAX):
                self.refresh()
                if not still():
                    return False
                entry = ManifestEntry(
                    environment=self._environment,
                    sequence=self._sequence + 1,
                    previous=self._digest,
                    action=action,
                    writer=self._writer,
                    written_at_ms=self._clock.now_ms(),
                    added=tuple(added),
                    removed=tuple(removed),
                    kept_from=kept_from,
                    extra={} if segment is None else {SEGMENT: segment},
                )
                if self.link(entry):
                    self._read(entry.sequence)
                    return True
        raise ChainContended(f"history: no free number in {self._folder} after {APPEND_TRIES_MAX} tries")

    def link(self, entry: ManifestEntry) -> bool:
        """Gives the entry its number. False: another writer has the number.

        If NFS loses the answer to a link, the client asks again. Then the answer is "exists", although the link is ours
        (link(2), BUGS).
        """
        target = self._folder / entry_name(entry.sequence)
        temporary = self._folder / f"{TEMPORARY}{ULID()}.json"
        try:
            with temporary.open("xb") as file:
                file.write(entry.encoded())
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, target)
        except FileExistsError:
            # No two entries are alike, because an entry has the writer's name, the time, and the files' digests.
            if not target.exists() or target.read_bytes() != entry.encoded():
                return False
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(self._folder)
        return True


def _entry_of(document: dict[str, Any]) -> ManifestEntry:
    known = {name: value for name, value in document.items() if name in _ENTRY_FIELDS}
    known["added"] = tuple(HistoryFile.of(item) for item in known.get("added", ()))
    known["removed"] = tuple(known.get("removed", ()))
    return ManifestEntry(**known, extra={k: v for k, v in document.items() if k not in _ENTRY_FIELDS})
