"""Answers of prefixes put together: in any order the same window, and never a window that lacks one."""

from __future__ import annotations

import random
import resource
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.engines.job import judge_here, judged_by
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence import files as kernel_files
from reconciler.audit.evidence.folder import Evidence, load_evidence
from reconciler.audit.evidence.plan import PlannedFile
from reconciler.audit.evidence.tables import READ_TABLES
from reconciler.audit.judge.merge import error_rows, result_rows
from reconciler.audit.judge.prefix import judge_prefix
from reconciler.audit.result.values import JudgedWindow
from reconciler.contract.history_row import PREFIXES
from tests.audit.random_evidence import random_evidence


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_evidence(11, keys=300).write(tmp_path_factory.mktemp("evidence"), parts=2)


@pytest.fixture(scope="module")
def evidence(folder: Path) -> Evidence:
    return load_evidence(folder, findings_a_prefix=1000)


@pytest.fixture(scope="module")
def answers(evidence: Evidence) -> list[pa.RecordBatch]:
    return [result_rows(prefix, judge_prefix(evidence.plan, prefix, files)) for prefix, files in evidence.files.items()]


def window_of(evidence: Evidence, batches: list[pa.RecordBatch]) -> JudgedWindow:
    return judged_by(evidence, lambda plan, files: pa.Table.from_batches(batches), 1000)


def test_the_order_in_which_prefixes_answer_changes_no_byte(
    folder: Path, evidence: Evidence, answers: list[pa.RecordBatch]
) -> None:
    expected = judge_here(folder)
    assert expected.findings
    for seed in range(3):
        shuffled = random.Random(seed).sample(answers, len(answers))
        rows = pa.Table.from_batches(shuffled).to_pylist()
        random.Random(seed).shuffle(rows)
        assert repr(window_of(evidence, [pa.RecordBatch.from_pylist(rows, schema=answers[0].schema)])) == repr(expected)


@pytest.mark.parametrize("change", ["one is missing", "one is there twice"])
def test_a_prefix_that_answers_not_once_is_no_answer(
    evidence: Evidence, answers: list[pa.RecordBatch], change: str
) -> None:
    """What two attempts of one task wrote would count twice; what none wrote would be a false clean."""
    wrong = answers[1:] if change == "one is missing" else [*answers, answers[0]]
    with pytest.raises(AuditError, match=r"prefixes \[0\]") as raised:
        window_of(evidence, wrong)
    assert raised.value.reason == "engine"


def test_one_prefix_that_refuses_its_inputs_refuses_the_window(
    evidence: Evidence, answers: list[pa.RecordBatch]
) -> None:
    refused = error_rows(40, AuditError("inputs", "inbox/prefix=40/x.parquet: altered"))
    with pytest.raises(AuditError, match=r"x\.parquet: altered") as raised:
        window_of(evidence, [*answers[:40], refused, *answers[41:]])
    assert raised.value.reason == "inputs"


def test_slices_read_each_file_once_and_the_outbox_again_for_business_ids(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = judge_here(folder)
    opened: Counter[str] = Counter()
    judged_files = kernel_files._open

    def counted(file: PlannedFile, *, is_verified: bool) -> object:
        opened[file.shown] += not is_verified
        return judged_files(file, is_verified=is_verified)

    monkeypatch.setattr(kernel_files, "_open", counted)
    assert repr(judge_here(folder, rows_at_once_max=4)) == repr(expected)
    assert set(opened.values()) == {1}


def test_sixteen_slices_read_as_many_rows_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the window's keys, once, and where something was found the outbox's for business ids: 1.2 times."""
    folder = tmp_path / "evidence"
    generate(Plan(rows=2_000, seed=3, accidents={"LOST": 400}, topics=1), folder)
    files = [one for of in load_evidence(folder, findings_a_prefix=1_000).files.values() for one in of]
    window = sum(one.rows for one in files if one.table in READ_TABLES)
    decoded: list[int] = []
    batches = kernel_files.VerifiedFile.batches

    def counted(file: kernel_files.VerifiedFile, columns: Sequence[str], *, by_row_group: bool = False) -> object:
        for batch in batches(file, columns, by_row_group=by_row_group):
            decoded.append(batch.num_rows if file._file.table in READ_TABLES else 0)
            yield batch

    monkeypatch.setattr(kernel_files.VerifiedFile, "batches", counted)
    read = {}
    for slices in (1, 16):
        decoded.clear()
        assert judge_here(folder, rows_at_once_max=window // (slices * PREFIXES)).classes["LOST"] == 400
        read[slices] = sum(decoded)
    assert read[1] == read[16]
    assert window < read[16] <= 1.3 * window


def test_a_disk_that_is_full_of_rows_that_wait_for_their_slice_is_no_answer(folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        with pytest.raises(AuditError, match="rows that wait for their slice: File too large") as raised:
            judge_here(folder, rows_at_once_max=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.reason == "engine"


@pytest.mark.nightly
def test_files_too_large_for_memory_give_the_same_answer_and_are_verified_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = judge_here(folder)
    monkeypatch.setattr(kernel_files, "WHOLE_FILE_BYTES_MAX", 0)
    assert repr(judge_here(folder, rows_at_once_max=10)) == repr(expected)
    damaged = random_evidence(11, keys=50).write(tmp_path)
    victim = sorted((damaged / "inbox").rglob("*.parquet"))[0]
    victim.write_bytes(victim.read_bytes() + b"\x00")
    with pytest.raises(AuditError, match="is not the file that was collected"):
        judge_here(damaged)
