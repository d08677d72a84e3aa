"""Where the evidence lies: beside the output, inside it, or with a history that is elsewhere or has moved."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.audit.errors import AuditError
from reconciler.audit.output.writing import write_output
from reconciler.audit.statement.verify import verify_statements
from tests.audit import judged_samples
from tests.audit import signed_samples as samples

INBOX = "inbox/prefix=00/part-0.parquet"
ANNOUNCED = "announced/environment=production/date=2026-11-20/prefix=00/a.parquet"


def alter(path: Path) -> None:
    rows = samples.table_rows("x")
    rows[3]["attempts"] = 99
    samples.write_rows(path, rows)


def test_evidence_inside_the_output_is_verified_without_being_named(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    judged = samples.judged_of(tmp_path / "evidence")
    out = write_output(judged, tmp_path / "out", signing_key=key, evidence=tmp_path / "evidence", keep_evidence=True)
    report = verify_statements(out, key.public)
    assert (report.verdict, report.not_checked) == ("verified", [])

    alter(out / "evidence" / INBOX)
    report = verify_statements(out, key.public)
    assert report.exit_code == 1
    assert {one.file for one in report.differences} == {f"evidence:{INBOX}"}


def test_auditing_the_evidence_of_an_output_again_into_the_same_output_keeps_it(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    judged = samples.judged_of(tmp_path / "evidence")
    out = write_output(judged, tmp_path / "out", signing_key=key, evidence=tmp_path / "evidence", keep_evidence=True)
    before = samples.files_of(out)
    write_output(judged, out, signing_key=key, evidence=out / "evidence")
    assert samples.files_of(out) == before


def test_a_history_that_lies_elsewhere_is_read_where_the_user_says_and_never_where_the_evidence_does(
    tmp_path: Path,
) -> None:
    key, _ = samples.new_key(tmp_path)
    evidence, history = tmp_path / "evidence", tmp_path / "history"
    samples.make_evidence(evidence)
    (evidence / "history").rename(history)
    (evidence / "evidence.json").write_text(json.dumps({"version": 1, "history": str(history)}))
    inputs = (
        *samples.listed(evidence),
        *(replace(one, path=f"history/{one.path}") for one in samples.listed(history)),
    )
    judged = replace(judged_samples.violations(), inputs=tuple(sorted(inputs, key=lambda one: one.path)))
    out = write_output(judged, tmp_path / "out", signing_key=key, evidence=evidence)
    report = verify_statements(out, key.public, evidence=evidence, history=str(history))
    assert (report.verdict, report.not_checked) == ("verified", [])

    alter(history / ANNOUNCED)
    report = verify_statements(out, key.public, evidence=evidence)
    assert report.verdict == "verified"
    (line,) = report.not_checked
    assert f"history: its files and the chain of its manifest; evidence.json says that it lies at {history}" in line
    report = verify_statements(out, key.public, evidence=evidence, history=str(history))
    assert {one.file for one in report.differences} == {f"evidence:history/{ANNOUNCED}"}


def test_the_evidence_of_another_audit_is_not_compared_with_this_one(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    first, evidence = samples.write_signed(tmp_path, key)
    samples.write_signed(tmp_path, key, day=1, previous=first)
    marked = tmp_path / "evidence-1" / "evidence.json"
    report = verify_statements(first.parent, key.public, evidence=evidence)
    assert report.verdict == "verified"

    other = tmp_path / "other"
    shutil.copytree(evidence, other)
    (other / "evidence.json").write_bytes(marked.read_bytes() + b" ")
    report = verify_statements(first.parent, key.public, evidence=other)
    assert (report.exit_code, report.verdict) == (2, "no answer")
    assert "no audit in this folder is of the given evidence" in report.unanswered[0]


def test_an_altered_list_of_inputs_vouches_for_nothing(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    out, evidence = samples.write_signed(tmp_path, key)
    inputs = out / "statement/inputs.json"
    inputs.write_bytes(inputs.read_bytes().replace(b'"rows":40', b'"rows":41', 1))
    report = verify_statements(out, key.public, evidence=evidence)
    assert report.exit_code == 1
    assert {one.file for one in report.differences} == {"statement/inputs.json"}
    assert "not as signed" in report.unanswered[0]


def test_evidence_that_is_no_folder_is_no_answer(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    out, _ = samples.write_signed(tmp_path, key)
    for place in (tmp_path / "nowhere", out / "report.html"):
        with pytest.raises(AuditError) as raised:
            verify_statements(out, key.public, evidence=place)
        assert raised.value.reason == "inputs"
