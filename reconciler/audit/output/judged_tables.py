"""Tables in the folder of --tables. A run replaces one window of one environment for each of its subscriptions.

A run becomes visible in its last step, when its rows in audit_runs replace the rows of the older run. Readers join the
other tables with audit_runs, so readers never see a run that died. The window's next audit removes the files of a dead
run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.audit.errors import AuditError, unwritable
from reconciler.audit.judged_tables.key_files import ROWS_A_GROUP, WRITING, KeyTarget, sync
from reconciler.audit.judged_tables.schema import COUNTS, FINDINGS, KEYS, RUNS, SCHEMAS
from reconciler.audit.output.judged_rows import counts_rows, findings_rows, runs_row
from reconciler.audit.output.lock import locked
from reconciler.audit.result.times import time_text
from reconciler.audit.result.values import JudgedWindow, KeyFile, Window

#: Folder beside the tables for locks and for files that are not yet valid.
ATTEMPTS = "_attempts"
_OF_KEYS = (KEYS, FINDINGS, COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTables:
    """One window of the tables, while only this process may write the window."""

    path: Path
    #: Beginning of the names of the window's files.
    window: str
    target: KeyTarget

    @property
    def attempts(self) -> Path:
        """Folder in which tasks write files. All files wait there until they are moved to their place."""
        return Path(self.target.folder)

    def was_judged(self) -> bool:
        """True if a run with evidence has put rows of the window into the tables."""
        visible = self.path / RUNS / f"{self.window}.parquet"
        return visible.exists() and any(pq.read_table(visible, partitioning=None)["evidence_sha256"].to_pylist())

    def replace(self, judged: JudgedWindow, out: Path, *, release: str, now_ms: int) -> None:
        """Replaces older rows of the same window and subscriptions by rows of this run.

        `out` is the folder with the statements. Raises AuditError("engine"). After an error the older rows stay valid.
        """
        try:
            runs = [runs_row(judged, one, self.target, out, release, now_ms) for one in judged.subscriptions]
            for place, one in enumerate(judged.subscriptions):
                name = self._name(one.subscription.topic, one.subscription.group)
                mine = [file for file in judged.key_files if file.place == place]
                if sum(file.rows for file in mine) != one.keys:
                    raise AuditError("engine", f"tasks wrote {sum(f.rows for f in mine)} of {one.keys} keys; run again")
                for number, part in enumerate(self._parts(mine, name)):
                    os.replace(part, self.path / KEYS / f"{name}_{self.target.run}_{number:04d}.parquet")
                for table, rows in ((FINDINGS, findings_rows), (COUNTS, counts_rows)):
                    part = self._written(f"{table}-{name}", [rows(judged, one, self.target)])
                    os.replace(part, self.path / table / f"{name}_{self.target.run}_0000.parquet")
            for table in _OF_KEYS:
                sync(self.path / table)
            visible = self.path / RUNS / f"{self.window}.parquet"
            os.replace(self._written(RUNS, [*_others(visible, runs), *runs]), visible)
            sync(visible.parent)
            self._remove_older(
                [self._name(one.subscription.topic, one.subscription.group) for one in judged.subscriptions]
            )
        except OSError as error:
            raise unwritable(f"--tables {self.path}", error) from error

    def _name(self, topic: str, group: str) -> str:
        """Makes the beginning of the names of a subscription's files."""
        return f"{self.window}_{_mark(topic, group)}"

    def _parts(self, files: Sequence[KeyFile], name: str) -> list[Path]:
        """Takes the files of tasks.

        If there are few keys or no keys, makes one file, because readers need the columns of a file.
        """
        paths = [self.attempts / file.name for file in files]
        if len(paths) == 1 or sum(file.rows for file in files) > ROWS_A_GROUP:
            return paths
        tables = [pq.read_table(path, partitioning=None) for path in paths]
        return [self._written(f"{KEYS}-{name}", tables or [SCHEMAS[KEYS].empty_table()])]

    def _written(self, name: str, tables: Sequence[pa.Table]) -> Path:
        path = self.attempts / f"{name}.parquet"
        pq.write_table(pa.concat_tables(tables, promote_options="default"), path, **WRITING)
        sync(path)
        return path

    def _remove_older(self, names: Sequence[str]) -> None:
        """Removes files that the run has replaced, and files of a run that died."""
        for table in _OF_KEYS:
            for path in sorted((self.path / table).glob(f"{self.window}_*.parquet")):
                name, run = path.name.rsplit("_", 2)[:2]
                if name in names and run != self.target.run:
                    path.unlink()


@contextmanager
def claim_tables(tables: Path, out: Path, *, environment: str, window: Window, now_ms: int) -> Iterator[ClaimedTables]:
    """Claims one window of the tables for this process, until the block ends or the process dies.

    Raises AuditError("usage") if the folder holds something else or lies in `out`, or if another audit is writing the
    window. Raises AuditError("engine") for a full disk.
    """
    path = Path(os.path.abspath(tables))
    if path.resolve().is_relative_to(Path(out).resolve()):
        raise AuditError(
            "usage", f"--tables {tables}: it lies in --out, which each audit replaces; name another folder"
        )
    if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not (path / RUNS).is_dir())):
        raise AuditError(
            "usage", f"--tables {tables}: it holds something else; name a folder that is new, empty, or has the tables"
        )
    name = f"{_plain(window.start_ms)}-{_plain(window.end_ms)}-{_mark(environment, window.start_ms, window.end_ms)}"
    run = f"{_plain(now_ms)}-{uuid.uuid4().hex[:8]}"
    attempts = path / ATTEMPTS / f"{name}_{run}"
    with ExitStack() as held:
        try:
            for table in (RUNS, *_OF_KEYS, ATTEMPTS):
                (path / table).mkdir(parents=True, exist_ok=True)
            another = f"another audit is writing the window {window}; wait for it to end"
            held.enter_context(locked(path / ATTEMPTS / f".{name}.lock", f"--tables {tables}: {another}"))
            for rest in (path / ATTEMPTS).glob(f"{name}_*"):
                shutil.rmtree(rest, ignore_errors=True)
            attempts.mkdir()
        except OSError as error:
            raise unwritable(f"--tables {tables}", error) from error
        held.callback(shutil.rmtree, attempts, ignore_errors=True)
        target = KeyTarget(folder=str(attempts), run=run, environment=environment)
        yield ClaimedTables(path=path, window=name, target=target)


def _others(visible: Path, runs: Sequence[pa.Table]) -> list[pa.Table]:
    """Reads the window's rows of audit_runs for subscriptions that this run has not judged."""
    if not visible.exists():
        return []
    judged = {(run["topic"][0].as_py(), run["consumer_group"][0].as_py()) for run in runs}
    older = pq.read_table(visible, partitioning=None)
    names = zip(older["topic"].to_pylist(), older["consumer_group"].to_pylist(), strict=True)
    return [older.filter(pa.array([name not in judged for name in names], pa.bool_()))]


def _plain(milliseconds: int) -> str:
    """Writes a time in characters that have no special meaning in file names and URLs."""
    return re.sub(r"[^0-9A-Za-z]", "", time_text(milliseconds))


def _mark(*names: str | int) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
