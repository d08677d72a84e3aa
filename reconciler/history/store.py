"""Folder of the history. Its Parquet files exist whole or not at all. Raises OSError."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.contract.history_row import HISTORY_STREAMS
from reconciler.contract.manifest import HistoryFile
from reconciler.errors import MalformedInput
from reconciler.history.spool import sync_folder
from reconciler.history.tables import Partition, parquet_of, read_parquet

TEMPORARY = ".tmp-"


class HistoryStore:
    """Files of one environment below `root`. Threads may share the object."""

    def __init__(self, root: Path, environment: str) -> None:
        self.root = root
        self.environment = environment

    def write(self, partition: Partition, name: str, table: pa.Table) -> HistoryFile:
        """Writes the file `name`.parquet and returns its description for the manifest.

        A file with the same name is replaced. A crash before the manifest's entry leaves the file, and the next try
        writes the same rows. No reader opens the file before the entry exists.
        """
        folder = self.root / partition.folder(self.environment)
        make_folder(folder, below=self.root)
        data = parquet_of(table)
        temporary, target = folder / f"{TEMPORARY}{name}.parquet", folder / f"{name}.parquet"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self.publish(temporary, target)
        times = pc.min_max(table["at_ms"]).as_py()
        return HistoryFile(
            path=target.relative_to(self.root).as_posix(),
            stream=partition.stream,
            date=partition.date,
            prefix=partition.prefix,
            rows=len(table),
            size_bytes=len(data),
            sha256=sha256(data).hexdigest(),
            first_ms=times["min"],
            last_ms=times["max"],
        )

    def publish(self, temporary: Path, target: Path) -> None:
        """Gives a complete file its name."""
        temporary.replace(target)
        sync_folder(target.parent)

    def read(self, file: HistoryFile) -> pa.Table:
        """Reads the rows of a file. Raises MalformedInput for a file that differs from the manifest."""
        data = (self.root / file.path).read_bytes()
        if len(data) != file.size_bytes or sha256(data).hexdigest() != file.sha256:
            raise MalformedInput(f"{file.path}: {len(data)} bytes that are not those of the manifest: it was altered")
        try:
            table = read_parquet(data, file.stream)
        except pa.ArrowException as error:
            raise MalformedInput(f"{file.path}: cannot be read: {error}") from error
        if len(table) != file.rows:
            raise MalformedInput(f"{file.path}: {len(table)} rows, {file.rows} in the manifest")
        return table

    def walk(self) -> Iterator[tuple[str, float]]:
        """Yields path and time of change (seconds) of every file of the environment.

        Files that the manifest lacks are included.
        """
        for stream in HISTORY_STREAMS:
            top = self.root / stream.name / f"environment={self.environment}"
            for folder, _, names in os.walk(top):
                for name in names:
                    path = Path(folder) / name
                    try:
                        yield path.relative_to(self.root).as_posix(), path.stat().st_mtime
                    except FileNotFoundError:
                        continue

    def delete(self, path: str) -> None:
        """Deletes a file, and folders that become empty. The file may be missing already."""
        target = self.root / path
        target.unlink(missing_ok=True)
        for folder in target.parents:
            if folder == self.root or folder.name.startswith("environment="):
                return
            try:
                folder.rmdir()
            except OSError:
                return


def make_folder(folder: Path, *, below: Path) -> None:
    """Makes the folder so that it survives a loss of power."""
    if folder.is_dir():
        return
    missing = [folder]
    while missing[-1] != below and not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)
