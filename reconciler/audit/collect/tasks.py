"""The pieces of a collection, as values that travel to executors: a range of a table, or look-ups of some prefixes.

A task answers with what it wrote or with why it could not: its errors come back as values, so that Spark neither
repeats a refusal nor wraps its words in a stack of its own.
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
    """What a task did."""

    files: tuple[WrittenFile, ...] = ()
    #: Those of LATER_COLUMNS that the source of a RowsTask lacks.
    lacking_columns: frozenset[str] = frozenset()
    #: Rows outside of the audit, of a CountTask.
    not_asked: Mapping[RowsOf, int] = field(default_factory=dict)
    #: (topic, group) -> keys whose effects nothing places in the window, of a LookUpTask.
    undated: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: Keys that had a row once and have none, of a LookUpTask: the earliest time of one.
    lacking: Mapping[Lacking, int] = field(default_factory=dict)
    #: Times between the ranges of a table, of a CutTask.
    cuts_ms: tuple[int, ...] = ()
    #: The time of the oldest row, of an AgeTask; None: another task, or no row.
    oldest_ms: int | None = None
    #: Why it could not.
    reason: Reason | None = None
    message: str = ""
    #: The option that named the source which may answer when it is asked again; "": none may.
    away: str = ""


class Task(Protocol):
    """One piece of work."""

    @property
    def reads_databases(self) -> bool:
        """Whether it needs addresses with passwords, and drivers."""

    def run(self) -> Answer:
        """Does it. Raises AuditError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsTask:
    """A range of a table."""

    folder: str
    part: str
    source: Source
    selection: Selection
    #: One file of an export.
    file: str | None = None

    @property
    def reads_databases(self) -> bool:
        """Of its source."""
        return self.source.kind == "database"

    def run(self) -> Answer:
        """Writes its files. Raises AuditError."""
        lacking: set[str] = set()
        rows = read_rows(self.source, self.selection, file=self.file, lacking=lacking)
        answer = _written(self.folder, self.selection, self.part, rows)
        return replace(answer, lacking_columns=frozenset(lacking))

    def part_of(self, number: int, selection: Selection) -> RowsTask:
        """The task of one of its ranges."""
        return replace(self, part=f"{self.part.rpartition('-')[0]}-{number:04d}", selection=selection)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsTask:
    """The business effects of one subscription, row by row; the look-ups count them by key."""

    folder: str
    part: str
    effects: EffectsSource
    topic: str
    group: str
    #: The values of :start_ms and :end_ms.
    between_ms: tuple[int, int]

    @property
    def reads_databases(self) -> bool:
        """Of its source."""
        return self.effects.source.kind == "database"

    def run(self) -> Answer:
        """Writes its files. Raises AuditError."""
        rows = read_effects(self.effects, self.topic, self.group, self.between_ms)
        return _written(self.folder, Selection(layout=EFFECTS_EVIDENCE, table=""), self.part, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpTask:
    """What the ranges have left open in some prefixes, asked by key."""

    lookups: PrefixLookups

    @property
    def reads_databases(self) -> bool:
        """Of its inboxes and outboxes: exports were read whole."""
        sources = (*(one.source for one in self.lookups.inboxes), *(one.source for one in self.lookups.outboxes))
        return any(source.kind == "database" for source in sources)

    def run(self) -> Answer:
        """Writes its files. Raises AuditError."""
        found = look_up(self.lookups)
        return Answer(files=found.files, undated=found.undated, lacking=found.lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTask:
    """Rows of a range of a table outside of the audit."""

    table: CountedTable

    @property
    def reads_databases(self) -> bool:
        """Of its source."""
        return self.table.source.kind == "database"

    def run(self) -> Answer:
        """Writes nothing. Raises AuditError."""
        return Answer(not_asked=not_asked_rows(self.table))


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTask:
    """Where what another task would read is cut into ranges."""

    source: Source
    selection: Selection

    @property
    def reads_databases(self) -> bool:
        """Of its source."""
        return self.source.kind == "database"

    def run(self) -> Answer:
        """Writes nothing, and leaves it to the task that reads the rows to say what is wrong with them."""
        try:
            return Answer(cuts_ms=cuts_ms(self.source, self.selection))
        except AuditError:
            return Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeTask:
    """How far back a table's rows go."""

    age: AgeOfRows

    @property
    def reads_databases(self) -> bool:
        """Of its source."""
        return self.age.source.kind == "database"

    def run(self) -> Answer:
        """Writes nothing. Raises AuditError."""
        return Answer(oldest_ms=self.age.oldest_ms())


@dataclass(frozen=True, slots=True, kw_only=True)
class SeeTask:
    """Whether the process that runs it sees what it is going to read, and can write what it is going to write."""

    #: (folder or URL, file below it)
    files: tuple[tuple[str, str], ...]
    #: A folder.
    writes: str | None = None

    @property
    def reads_databases(self) -> bool:
        """It reads files."""
        return False

    def run(self) -> Answer:
        """Leaves nothing. Raises AuditError("engine") with host and path."""
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
    """Runs a task; never raises for what evidence, databases and disks do."""
    try:
        return task.run()
    except SourceAwayError as error:
        return Answer(reason=error.reason, message=str(error), away=error.source)
    except AuditError as error:
        return Answer(reason=error.reason, message=str(error))
    except OSError as error:
        return Answer(reason="engine", message=f"evidence cannot be written: {error.strerror or error}")


def files_of(answers: list[Answer]) -> Mapping[str, WrittenFile]:
    """Everything that was written, by path. Raises AuditError with every task's problem, each once."""
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
