"""Plans merges of files (pure), and merges files into fewer, larger files. The rows stay. Equal rows become one row."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from ulid import ULID

from reconciler.contract.manifest import HistoryFile
from reconciler.errors import MalformedInput
from reconciler.history.chain import ManifestChain
from reconciler.history.store import HistoryStore
from reconciler.history.tables import Partition, sorted_once

logger = logging.getLogger(__name__)

#: Largest size of a merge. The limit bounds the memory of a merge.
MERGED_BYTES_MAX = 64 * 1024 * 1024
#: Largest size of a merge of a finished hour's files. The limit bounds the bytes that are written again after each
#: hour.
SMALL_BYTES_MAX = 1024 * 1024
#: Largest number of merges in one entry of the manifest.
MERGES_AN_ENTRY = 64


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one folder that become one file."""

    partition: Partition
    files: tuple[HistoryFile, ...]


def plan_merges(
    files: Iterable[HistoryFile],
    *,
    over_before: str,
    hour_began_ms: int,
    files_max: int,
) -> Iterator[Merge]:
    """Yields the merges that are worth their cost. The oldest day comes first.

    Days before `over_before` (YYYY-MM-DD) get one file per folder. On other days, small files become one file if all
    their rows are older than `hour_began_ms`. If a folder still has more than `files_max` files, the folder is merged,
    too. In that merge a file that is larger than all others together is left out, so that a row is not written again
    with every seal.
    """
    folders: dict[Partition, list[HistoryFile]] = {}
    for file in files:
        folders.setdefault(Partition(file.stream, file.date, file.prefix), []).append(file)
    for partition in sorted(folders, key=lambda p: (p.date, p.stream, -1 if p.prefix is None else p.prefix)):
        by_size = sorted(folders[partition], key=lambda f: (f.size_bytes, f.path))
        found = [f for f in by_size if f.size_bytes < MERGED_BYTES_MAX]
        if partition.date < over_before:
            chosen: Sequence[HistoryFile] = found
        elif len(found) > files_max:
            chosen = _of_like_size(found)
        else:
            chosen = _bounded([f for f in found if f.last_ms < hour_began_ms], SMALL_BYTES_MAX)
        bounded = _bounded(chosen, MERGED_BYTES_MAX)
        if len(bounded) > 1:
            yield Merge(partition, bounded)


def _of_like_size(found: Sequence[HistoryFile]) -> Sequence[HistoryFile]:
    smaller = list(found)
    while len(smaller) > 1 and smaller[-1].size_bytes > sum(f.size_bytes for f in smaller[:-1]):
        smaller.pop()
    return smaller if len(smaller) > 1 else found


def _bounded(found: Sequence[HistoryFile], bytes_max: int) -> tuple[HistoryFile, ...]:
    """Takes the smallest files, up to `bytes_max` together. The next call takes the rest."""
    taken: list[HistoryFile] = []
    total = 0
    for file in found:
        total += file.size_bytes
        if total > bytes_max:
            break
        taken.append(file)
    return tuple(taken)


class Compactor:
    """Merges files. Confined to one thread; other processes may compact the same history."""

    def __init__(self, store: HistoryStore, chain: ManifestChain) -> None:
        self._store = store
        self._chain = chain
        #: Files that differ from the manifest. They are never merged, so that they can still be found.
        self.damaged: set[str] = set()

    def merge(self, merges: Sequence[Merge]) -> int:
        """Carries out up to MERGES_AN_ENTRY merges in one entry. Returns the number of removed files.

        Returns 0 if another writer touched the same files meanwhile. Then the written files are orphans, and are
        deleted. Raises OSError and ChainContended.
        """
        added: list[HistoryFile] = []
        removed: list[str] = []
        name = str(ULID())
        for merge in merges[:MERGES_AN_ENTRY]:
            tables = self._read(merge)
            if tables is not None:
                added.append(self._store.write(merge.partition, name, sorted_once(pa.concat_tables(tables))))
                removed += [file.path for file in merge.files]
        if not added:
            return 0
        is_done = self._chain.append("compact", added=added, removed=removed, still=lambda: self._are_there(removed))
        if not is_done:
            logger.info("history_compaction_lost_a_race", extra={"files": len(removed)})
            for file in added:
                self._store.delete(file.path)
        return len(removed) if is_done else 0

    def _read(self, merge: Merge) -> list[pa.Table] | None:
        """Reads the files of a merge. None: a file was altered or is missing."""
        tables = []
        for file in merge.files:
            try:
                tables.append(self._store.read(file))
            except (MalformedInput, FileNotFoundError) as error:
                if file.path not in self.damaged:
                    logger.error("history_file_damaged", extra={"file": file.path, "error": str(error)})  # noqa: TRY400
                self.damaged.add(file.path)
                return None
        return tables

    def _are_there(self, paths: Sequence[str]) -> bool:
        files = self._chain.files()
        return all(path in files for path in paths)
