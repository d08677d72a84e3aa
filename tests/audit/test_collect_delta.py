"""Exports as real Delta tables: what the log counts is read, and not every file that lies there."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.sources import Source, Sources
from reconciler.audit.collect.tasks import Answer, CountTask, RowsTask, Task
from reconciler.audit.engines.engine import one_by_one
from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError
from tests.audit.audited_databases import Databases, load_databases, quiet
from tests.audit.delta_exports import rows_of, write_exports

#: With the audit's other long tests.
pytestmark = pytest.mark.spark

ACCIDENTS = {"LOST": 4, "EFFECT_WITHOUT_COMMIT": 3, "QUARANTINED": 2, "REPAIRED": 3, "ROLLED_BACK": 2}


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    generate(Plan(rows=300, seed=3, accidents=ACCIDENTS), tmp_path / "generated")
    return tmp_path / "generated"


@pytest.fixture
def databases(generated: Path, tmp_path: Path) -> Databases:
    numbers = iter(range(100))
    return load_databases(generated, lambda: f"sqlite:///{tmp_path}/database-{next(numbers)}.db")


def delta(place: Path, option: str) -> Source:
    return Source(kind="delta", address=str(place), option=option)


def exported(databases: Databases, folder: Path) -> Sources:
    write_exports(databases, folder)
    sources = databases.sources()
    return replace(
        sources,
        outboxes=tuple((group, delta(folder / "outbox", "--outbox")) for group, _ in sources.outboxes),
        inboxes=dict.fromkeys(sources.inboxes, (delta(folder / "inbox", "--inbox"),)),
        ledger=delta(folder / "ledger", "--ledger"),
    )


def test_delta_tables_give_the_answer_of_the_databases(databases: Databases, generated: Path, tmp_path: Path) -> None:
    sources = exported(databases, tmp_path / "delta")
    table = deltalake.DeltaTable(str(tmp_path / "delta" / "outbox"))
    assert table.version() >= 4
    there = list((tmp_path / "delta" / "outbox").rglob("*.parquet"))
    assert len(there) > len(table.file_uris()), "files that the log has removed still lie there"
    (tmp_path / "evidence").mkdir()
    collect(databases.request(sources), tmp_path / "evidence", one_by_one, quiet)
    assert judge_here(tmp_path / "evidence").classes == judge_here(generated).classes


def test_what_other_machines_may_run_holds_no_address_of_a_database(databases: Databases, tmp_path: Path) -> None:
    """Outboxes are exports; the address of the inboxes and the ledger is in no task that says that it reads none."""
    sources = replace(databases.sources(), outboxes=exported(databases, tmp_path / "delta").outboxes)
    elsewhere: list[Task] = []

    def run(function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
        elsewhere.extend(task for task in tasks if not task.reads_databases)
        return one_by_one(function, tasks)

    (tmp_path / "evidence").mkdir()
    collect(databases.request(sources), tmp_path / "evidence", run, quiet)
    assert {type(task) for task in elsewhere} >= {RowsTask, CountTask}
    packed = b"".join(map(pickle.dumps, elsewhere))
    assert str(tmp_path / "delta").encode() in packed
    for url in (databases.outbox_url, databases.inbox_url, databases.ledger_url):
        assert url.encode() not in packed


def test_a_delta_table_that_lacks_a_file_is_no_evidence(databases: Databases, tmp_path: Path) -> None:
    sources = exported(databases, tmp_path / "delta")
    table = deltalake.DeltaTable(str(tmp_path / "delta" / "inbox"))
    Path(table.file_uris()[0].removeprefix("file://")).unlink()
    (tmp_path / "evidence").mkdir()
    with pytest.raises(AuditError, match="--inbox: the export cannot be read to its end") as refused:
        collect(databases.request(sources), tmp_path / "evidence", one_by_one, quiet)
    assert refused.value.reason == "inputs"


def test_a_delta_table_that_needs_a_newer_reader_is_refused(databases: Databases, tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(rows_of(databases.inbox_url, "reconciler_inbox")[:5])
    columns = [name for name in rows.column_names if not pa.types.is_null(rows.schema.field(name).type)]
    vectors = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(str(tmp_path / "inbox"), rows.select(columns), configuration=vectors)
    sources = databases.sources()
    given = replace(sources, inboxes=dict.fromkeys(sources.inboxes, (delta(tmp_path / "inbox", "--inbox"),)))
    (tmp_path / "evidence").mkdir()
    with pytest.raises(AuditError, match=r"--inbox: the Delta table cannot be read.*deletionVectors") as refused:
        collect(databases.request(given), tmp_path / "evidence", one_by_one, quiet)
    assert refused.value.reason == "inputs"
