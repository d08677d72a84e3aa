"""A row that was taken out of the evidence is named by its key, as long as the evidence still has that key anywhere."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.audit.engines.job import judge_here
from reconciler.audit.output.writing import write_output
from reconciler.audit.statement.checksums import key_marks, marks_of, rows_of
from reconciler.audit.statement.compare import SignedRows, altered_rows
from reconciler.audit.statement.keys import SigningKey
from reconciler.audit.statement.verification import VerifyReport
from reconciler.audit.statement.verify import verify_statements
from reconciler.contract.history_row import prefix_of
from tests.audit.signed_samples import new_key
from tests.audit.small_evidence import SmallEvidence

#: Twenty messages of one prefix: their rows lie in one file a table.
KEYS = [one for number in range(4_000) if prefix_of(one := number.to_bytes(16, "big")) == 7][:20]
OUTBOX = "outbox/prefix=07/part-0.parquet"


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return new_key(tmp_path)[0]


@pytest.fixture
def evidence(tmp_path: Path, key: SigningKey) -> Path:
    made = SmallEvidence()
    for one in KEYS:
        made.story(one)
    folder = made.write(tmp_path / "evidence")
    write_output(judge_here(folder), tmp_path / "out", signing_key=key, evidence=folder)
    return folder


def take_out(file: Path, *keys: bytes) -> None:
    """Writes the file anew without their rows."""
    table = pq.ParquetFile(file).read()
    pq.write_table(table.filter(pa.array([one not in keys for one in table["key"].to_pylist()])), file)


def verify(evidence: Path, key: SigningKey) -> VerifyReport:
    return verify_statements(evidence.parent / "out", key.public, evidence=evidence)


def told(report: VerifyReport, path: str) -> list[str]:
    return [str(one) for one in report.differences if path in str(one)]


def test_a_row_taken_out_of_one_table_is_named_by_its_key(evidence: Path, key: SigningKey) -> None:
    take_out(evidence / OUTBOX, KEYS[3], KEYS[11])
    lines = told(verify(evidence, key), OUTBOX)
    assert len(lines) == 2
    for one in (KEYS[3], KEYS[11]):
        assert sum(f"file, key {one.hex().upper()}" in line for line in lines) == 1
    assert all("of the signed file" in line and "missing or altered" in line for line in lines)


def test_a_row_taken_out_of_the_history_is_named_by_its_key(evidence: Path, key: SigningKey) -> None:
    (file,) = (evidence / "history" / "announced").rglob("prefix=07/*.parquet")
    take_out(file, KEYS[0])
    (line,) = told(verify(evidence, key), "history/announced")
    assert f"file, key {KEYS[0].hex().upper()}" in line


def test_a_key_that_was_taken_out_everywhere_is_told_to_be_nowhere(evidence: Path, key: SigningKey) -> None:
    for file in evidence.rglob("prefix=07/*.parquet"):
        take_out(file, KEYS[5])
    (line,) = told(verify(evidence, key), OUTBOX)
    assert "whose key is in no other file of the evidence" in line
    assert KEYS[5].hex().upper() not in line


def test_files_that_cannot_be_read_any_more_name_nothing_and_stop_nothing(evidence: Path, key: SigningKey) -> None:
    take_out(evidence / OUTBOX, KEYS[2])
    for file in evidence.rglob("prefix=07/*.parquet"):
        if file != evidence / OUTBOX and "inbox" not in file.parts:
            file.write_bytes(b"no parquet")
    (line,) = told(verify(evidence, key), OUTBOX)
    assert f"file, key {KEYS[2].hex().upper()}" in line, "the inbox still has it"


def signed_before(data: bytes) -> SignedRows:
    """As outputs kept checksums when keys had no marks."""
    return SignedRows(rows_of(OUTBOX, data, marks=False).checksums)


def signed_now(data: bytes) -> SignedRows:
    rows = rows_of(OUTBOX, data)
    return SignedRows(rows.checksums, rows.has_marks)


@pytest.mark.parametrize("signed", [signed_before, signed_now])
def test_checksums_of_older_outputs_still_name_altered_rows(
    evidence: Path, signed: Callable[[bytes], SignedRows]
) -> None:
    data = (evidence / OUTBOX).read_bytes()
    assert signed(data).has_marks == (signed is signed_now)
    table = pq.ParquetFile(evidence / OUTBOX).read()
    times = table["created_at_ms"].to_pylist()
    times[4] += 1
    changed = table.set_column(table.column_names.index("created_at_ms"), "created_at_ms", pa.array(times, pa.int64()))
    sink = io.BytesIO()
    pq.write_table(changed, sink)
    ((row, message),) = altered_rows(OUTBOX, sink.getvalue(), signed(data))
    assert (row.split(" (")[0], message) == ("row 5", "altered")
    sink = io.BytesIO()
    pq.write_table(table.slice(1), sink)
    ((row, message),) = altered_rows(OUTBOX, sink.getvalue(), signed(data))
    assert (row, message) == ("row 1 of the signed file", "missing or altered")


def test_marks_are_the_keys_alone_and_only_files_with_keys_have_them(evidence: Path) -> None:
    rows = {path: rows_of(path, (evidence / path).read_bytes()) for path in (OUTBOX, OUTBOX.replace("out", "in"))}
    marks = [set(marks_of(one.checksums).tolist()) for one in rows.values()]
    assert marks[0] == marks[1] == set(key_marks(pa.array(KEYS)).tolist())
    assert len(marks[0]) == len(KEYS)
    index = json.loads((evidence.parent / "out" / "statement" / "row-checksums.json").read_text())
    with_marks = {one["path"] for one in index if one.get("marks")}
    assert OUTBOX in with_marks
    assert not {"result.json", "findings.parquet", "report.html"} & with_marks
