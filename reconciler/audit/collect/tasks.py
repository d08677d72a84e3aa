"""Tasks of a collection. A task is a value that travels to an executor, such as a range of a table, or some look-ups.

A task answers with its files or with its error. Errors are values, so that Spark does not repeat a refusal, and does
not wrap the error's words in a stack trace.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyarrow import fs as arrow_fs

from reconciler.audit.collect.coverage import CountedTable, not_asked_rows
from reconciler.audit.collect.deleted import AgeOfRows, Lacking
from reconciler.audit.collect.lookups import PrefixLookups, look_up
from reconciler.audit.collect.ranges import cuts_ms
from reconciler.audit.collect.selection import Selection, read_effects, read_rows
from reconciler.audit.collect.sources import EffectsSource, Source
from reconciler.audit.collect.writer import PrefixWriter, WrittenFile
from reconciler.audit.errors import AuditError, Reason, SourceAwayError
from reconciler.audit.places import open_folder
from reconciler.audit.result.not_judged import RowsOf
from reconciler.contract.evidence_layout import EFFECTS_EVIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of a task."""

    files: tuple[WrittenFile, ...] = ()
    #: LATER_COLUMNS that the source of a RowsTask lacks.
    lacking_columns: frozenset[str] = frozenset()
    #: Rows outside of the audit that a CountTask has counted.
    not_asked: Mapping[RowsOf, int] = field(default_factory=dict)
    #: For a LookUpTask: (topic, group) -> number of keys whose effects no evidence places in the window.
    undated: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: For a LookUpTask: table that must have had rows of keys and has none -> earliest time of such a key.
    lacking: Mapping[Lacking, int] = field(default_factory=dict)
    #: Times between the ranges of a table that a CutTask has found.
    cuts_ms: tuple[int, ...] = ()
    #: Time of the oldest row that an AgeTask has found. None: the table has no row, or the task is no AgeTask.
    oldest_ms: int | None = None
    #: Kind of the error. None: the task succeeded.
    reason: Reason | None = None
    message: str = ""
    #: Option of the source that was away and may answer later. "": asking again does not help.
    away: str = ""


class Task(Protocol):
    """One piece of work."""

    @property
    def reads_databases(self) -> bool:
        """True if the task needs drivers, and addresses with passwords."""

    def run(self) -> Answer:
        """Runs the task. Raises AuditError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsTask:
    """Task that reads a range of a table."""

    folder: str
    part: str
    source: Source
    selection: Selection
    #: Path of one file of an export. None: the table is read in one piece.
    file: str | None = None

    @property
    def reads_databases(self) -> bool:
        """True if the source of the task is a database."""
        return self.source.kind == "database"

    def run(self) -> Answer:
        """Writes its files. Raises AuditError."""
        lacking: set[str] = set()
        rows = read_rows(self.source, self.selection, file=self.file, lacking=lacking)
        answer = _written(self.folder, self.selection, self.part, rows)
        return replace(answer, lacking_columns=frozenset(lacking))

    def part_of(self, number: int, selection: Selection) -> RowsTask:
        """Makes the task that reads one range of this task's rows."""
        return replace(self, part=f"{self.part.rpartition('-')[0]}-{number:04d}", selection=selection)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsTask:
    """Task that reads one subscription's business effects row by row. The look-ups count them by key."""

    folder: str
    part: str
    effects: EffectsSource
    topic: str
    group: str
    #: Values of :start_ms and :end_ms.
    between_ms: tuple[int, int]

    @property
    def reads_databases(self) -> bool:
        """True if the source of the task is a database."""
        return self.effects.source.kind == "database"

    def run(self) -> Answer:
        """Writes its files. Raises AuditError."""
        rows = read_effects(self.effects, self.topic, self.group, self.between_ms)
        return _written(self.folder, Selection(layout=EFFECTS_EVIDENCE, table=""), self.part, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpTask:
    """Task that asks by key for rows that the ranges have not shown. The keys have some of the prefixes."""

    lookups: PrefixLookups

    @property
    def reads_databases(self) -> bool:
        """True if an inbox or outbox is a database. Exports were read whole."""
        sources = (*(one.source for one in self.lookups.inboxes), *(one.source for one in self.lookups.outboxes))
        return any(source.kind == "database" for source in sources)

    def run(self) -> Answer:
        """Writes its files. Raises AuditError."""
        found = look_up(self.lookups)
        return Answer(files=found.files, undated=found.undated, lacking=found.lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTask:
    """Task that counts rows outside of the audit in a range of a table."""

    table: CountedTable

    @property
    def reads_databases(self) -> bool:
        """True if the source of the task is a database."""
        return self.table.source.kind == "database"

    def run(self) -> Answer:
        """Counts the rows and writes nothing. Raises AuditError."""
        return Answer(not_asked=not_asked_rows(self.table))


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTask:
    """Task that finds the times at which the rows of another task are cut into ranges."""

    source: Source
    selection: Selection

    @property
    def reads_databases(self) -> bool:
        """True if the source of the task is a database."""
        return self.source.kind == "database"

    def run(self) -> Answer:
        """Finds the times and writes nothing. An error gives no times.

        The task that reads the rows reports the error.
        """
        try:
            return Answer(cuts_ms=cuts_ms(self.source, self.selection))
        except AuditError:
            return Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeTask:
    """Task that finds the oldest row of a table."""

    age: AgeOfRows

    @property
    def reads_databases(self) -> bool:
        """True if the source of the task is a database."""
        return self.age.source.kind == "database"

    def run(self) -> Answer:
        """Reads the time and writes nothing. Raises AuditError."""
        return Answer(oldest_ms=self.age.oldest_ms())


@dataclass(frozen=True, slots=True, kw_only=True)
class SeeTask:
    """Task that checks whether its process can read these files and write into this folder."""

    #: Pairs of a folder or URL and a file below it.
    files: tuple[tuple[str, str], ...]
    #: Folder to write into. None: no folder.
    writes: str | None = None

    @property
    def reads_databases(self) -> bool:
        """False, because the task reads only files."""
        return False

    def run(self) -> Answer:
        """Checks the files and the folder, and leaves no file. Raises AuditError("engine") with host and path."""
        for root, path in self.files:
            try:
                filesystem, base = open_folder(root)
                is_there = filesystem.get_file_info(f"{base}/{path}").type == arrow_fs.FileType.File
            except (OSError, ValueError, pa.ArrowException) as error:
                raise _unseen(f"cannot read {root} ({error})") from error
            if not is_there:
                raise _unseen(f"does not see {root} as the driver does (there is no {path})")
        if self.writes is not None:
            try:
                with tempfile.NamedTemporaryFile(dir=self.writes, prefix=".seen-"):
                    pass
            except OSError as error:
                raise _unseen(f"cannot write into {self.writes} ({error.strerror})") from error
        return Answer()


def _unseen(what: str) -> AuditError:
    return AuditError(
        "engine",
        f"an executor on {socket.gethostname()} {what}: on a cluster every executor must see evidence and history "
        "under the driver's path: put them on a shared file system (history and given evidence: or into an object "
        "store), or audit on one machine (--master 'local[*]' or --engine here)",
    )


def answer(task: Task) -> Answer:
    """Runs a task and returns its answer. Errors of evidence, databases and disks become answers, too."""
    try:
        return task.run()
    except SourceAwayError as error:
        return Answer(reason=error.reason, message=str(error), away=error.source)
    except AuditError as error:
        return Answer(reason=error.reason, message=str(error))
    except OSError as error:
        return Answer(reason="engine", message=f"evidence cannot be written: {error.strerror or error}")


def files_of(answers: list[Answer]) -> Mapping[str, WrittenFile]:
    """Maps paths to the written files. Raises AuditError with all distinct problems of the tasks."""
    failed = [found for found in answers if found.reason is not None]
    if failed:
        reason = next((found.reason for found in failed if found.reason != "engine"), failed[0].reason) or "inputs"
        raise AuditError(reason, "\n".join(dict.fromkeys(found.message for found in failed if found.reason == reason)))
    return {file.path: file for found in answers for file in found.files}


def _written(folder: str, selection: Selection, part: str, tables: Iterator[pa.Table]) -> Answer:
    with PrefixWriter(Path(folder), selection.layout, part) as writer:
        for table in tables:
            writer.add(table)
        return Answer(files=tuple(writer.close()))
