"""A file that unpacks to far more than any of ours ends the audit with an answer, and not with the machine."""

from __future__ import annotations

import hashlib
import re
import resource
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from reconciler.audit.engines import job
from reconciler.audit.engines.job import judge_here
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence import memory
from reconciler.audit.history.chain import read_chain
from reconciler.contract.history_row import SNAPSHOT
from reconciler.contract.manifest import ManifestEntry, entry_name, manifest_folder
from tests.audit.small_evidence import SmallEvidence, seal_again
from tests.audit.written_history import schema_of

MEBIBYTE = 1024**2
ALLOWED_BYTES = 256 * MEBIBYTE
#: A value, and how often a file of some kilobytes has it: together a gibibyte.
VALUE_BYTES, ROWS = MEBIBYTE, 1024


@pytest.fixture
def small(tmp_path: Path) -> Path:
    evidence = SmallEvidence()
    evidence.story(bytes(15) + b"\1")
    evidence.add("snapshot")
    return evidence.write(tmp_path)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "machine_bytes", lambda: int(ALLOWED_BYTES / memory.MACHINE_SHARE))


def unpacks(schema: pa.Schema, name: str, value: str | bytes) -> pa.Table:
    """Rows of one value each, which a file has once."""
    columns = {
        field.name: pa.nulls(ROWS, field.type) if field.nullable else pa.repeat(_something(field.type), ROWS)
        for field in schema
    }
    index, values = pa.repeat(pa.scalar(0, pa.int32()), ROWS), pa.array([value])
    columns[name] = pa.DictionaryArray.from_arrays(index, values)
    return pa.table(columns)


def _something(kind: pa.DataType) -> pa.Scalar:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.scalar("a" if pa.types.is_string(plain) else b"a" if pa.types.is_binary(plain) else 1, plain)


def refusal(folder: Path) -> str:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(AuditError) as refused:
        judge_here(folder)
    assert refused.value.reason == "inputs"
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    return str(refused.value)


def unpacking_outbox(folder: Path, name: str, value: str | bytes) -> str:
    """The path of a file of the outbox in which this column unpacks."""
    (file,) = folder.glob("outbox/*/*.parquet")
    path = str(file.relative_to(folder))
    seal_again(folder, path, unpacks(pq.read_schema(file), name, value), store_schema=False)
    assert file.stat().st_size < 10 * MEBIBYTE
    return path


def test_a_file_of_evidence_that_unpacks_to_a_gigabyte_is_named(small: Path) -> None:
    path = unpacking_outbox(small, "key", b"k" * VALUE_BYTES)
    said = refusal(small)
    assert said.startswith(f"{path}: cannot be decoded (")
    assert said.endswith(" failed); write it again")


def test_what_a_file_holds_is_not_repeated_at_any_length(small: Path) -> None:
    path = unpacking_outbox(small, "state", "s" * VALUE_BYTES)
    said = refusal(small)
    assert said.startswith(f"{path}: column `state` holds 'sss")
    assert len(said) < 500


def test_a_prefix_that_takes_more_memory_than_is_allowed_is_named(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_arguments: object) -> None:
        bytearray(2 * ALLOWED_BYTES)

    monkeypatch.setattr(job, "judge_prefix", judge)
    assert re.match(r"a file of prefix=\d\d takes more than 25[56] MiB of memory to look at: ", refusal(small))


def test_a_file_of_the_history_that_unpacks_to_a_gigabyte_is_named(small: Path) -> None:
    history = small / "history"
    chain = read_chain(LocalFileSystem(), str(history), "test")
    (old,) = (file for file in chain.files.values() if file.stream == SNAPSHOT.name)
    path = old.path.replace(".parquet", "-merged.parquet")
    pq.write_table(unpacks(schema_of(SNAPSHOT), "epoch", "e" * VALUE_BYTES), history / path, store_schema=False)
    data = (history / path).read_bytes()
    assert len(data) < 10 * MEBIBYTE
    new = replace(old, path=path, rows=ROWS, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    entry = ManifestEntry(
        environment="test",
        sequence=chain.sequence + 1,
        previous=chain.digest,
        action="compact",
        writer="test",
        written_at_ms=chain.sequence,
        added=(new,),
        removed=(old.path,),
    )
    (history / manifest_folder("test") / entry_name(entry.sequence)).write_bytes(entry.encoded())
    assert f"history file {path}: has not the columns" in refusal(small)


def test_windows_that_are_judged_at_the_same_time_leave_no_limit_behind() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    begun, may_end = threading.Event(), threading.Event()

    def judge() -> None:
        with memory.bounded_memory("one window"):
            begun.set()
            may_end.wait(60)

    other = threading.Thread(target=judge)
    other.start()
    assert begun.wait(60)
    with memory.bounded_memory("another window"):
        may_end.set()
        other.join(60)
        assert resource.getrlimit(resource.RLIMIT_DATA) != before
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
