"""Each alteration of an output, its statements or its evidence is found, and its file is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from reconciler.audit.result.documents import canonical
from reconciler.audit.statement.folder import ALTERED
from reconciler.audit.statement.keys import PublicKey
from reconciler.audit.statement.verification import VerifyReport
from reconciler.audit.statement.verify import verify_statements
from tests.audit import signed_samples as samples
from tests.examples import examples

OUTBOX = "outbox/prefix=00/part-0.parquet"


class Signed:
    """A signed output with its evidence; what a test alters is put back."""

    def __init__(self, folder: Path) -> None:
        key, _ = samples.new_key(folder)
        self.key: PublicKey = key.public
        self.out, self.evidence = samples.write_signed(folder, key)
        self.files = {f"out/{name}": data for name, data in samples.files_of(self.out).items()}
        inputs = (one.path for one in samples.listed(self.evidence))
        self.files |= {f"evidence/{name}": (self.evidence / name).read_bytes() for name in inputs}

    def path(self, name: str) -> Path:
        place, _, relative = name.partition("/")
        return (self.out if place == "out" else self.evidence) / relative

    def shown(self, name: str) -> str:
        place, _, relative = name.partition("/")
        return relative if place == "out" else f"evidence:{relative}"

    def verify(self) -> VerifyReport:
        return verify_statements(self.out, self.key, evidence=self.evidence)

    def put_back(self) -> None:
        for name, data in self.files.items():
            path = self.path(name)
            if not path.is_file() or path.read_bytes() != data:
                path.write_bytes(data)


@pytest.fixture(scope="module")
def module_signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return Signed(tmp_path_factory.mktemp("signed"))


@pytest.fixture
def signed(module_signed: Signed) -> Iterator[Signed]:
    yield module_signed
    module_signed.put_back()


def named(report: VerifyReport) -> set[str]:
    return {difference.file for difference in report.differences}


def lines(report: VerifyReport) -> str:
    return "\n".join(map(str, report.differences))


def test_an_unaltered_output_is_verified_to_the_last_file(signed: Signed) -> None:
    report = signed.verify()
    assert (report.exit_code, report.verdict, report.differences, report.not_checked) == (0, "verified", [], [])
    assert report.files_equal == len(signed.files) - 2 * len(report.statements)
    assert all(one.signature_holds for one in report.statements)
    assert {one.topic for one in report.statements} == {"ORDERS", "REFUNDS"}


@given(st.data())
@hypothesis_settings(max_examples=examples(150), deadline=None)
def test_one_flipped_byte_anywhere_is_found_and_its_file_named(module_signed: Signed, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(module_signed.files)))
    before = module_signed.files[name]
    offset = data.draw(st.integers(0, len(before) - 1))
    mask = data.draw(st.integers(1, 255))
    altered = bytearray(before)
    altered[offset] ^= mask
    path = module_signed.path(name)
    try:
        path.write_bytes(altered)
        report = module_signed.verify()
    finally:
        path.write_bytes(before)
    assert report.exit_code == 1
    assert module_signed.shown(name) in named(report), lines(report)


def test_rows_altered_taken_away_added_or_doubled_are_found(signed: Signed) -> None:
    path = signed.evidence / OUTBOX
    rows = samples.table_rows(OUTBOX)
    altered = [dict(row) for row in rows]
    altered[5]["key"] += b"\0"
    for changed in (altered, rows[:7] + rows[8:], [*rows[:7], rows[3], *rows[7:]]):
        samples.write_rows(path, changed)
        assert [str(one) for one in signed.verify().differences] == [f"evidence:{OUTBOX}: {ALTERED}"]


def test_the_same_rows_written_again_in_another_layout_are_a_difference(signed: Signed) -> None:
    path = signed.evidence / OUTBOX
    pq.write_table(pq.read_table(path, partitioning=None), path, compression="none")
    assert signed.verify().exit_code == 1


def test_a_forged_count_is_named_by_its_path_in_result_and_statement(signed: Signed) -> None:
    result = signed.out / "result.json"
    result.write_bytes(result.read_bytes().replace(b'"LOST":4', b'"LOST":0'))
    report = signed.verify()
    assert "result.json: /classes/LOST: the statement of ORDERS/billing says 4, the outputs say 0" in lines(report)
    assert f"result.json: {ALTERED}" in lines(report)

    signed.put_back()
    statement = signed.out / "statement/ORDERS--billing.json"
    statement.write_bytes(statement.read_bytes().replace(b'"LOST":4', b'"LOST":0'))
    report = signed.verify()
    assert "ORDERS--billing.json: /classes/LOST: says 0, the outputs say 4" in lines(report)


def test_a_finding_taken_out_of_the_list_is_noticed_in_every_form(signed: Signed) -> None:
    findings = signed.out / "findings.json"
    rows = json.loads(findings.read_bytes())
    findings.write_text(json.dumps(rows[1:]))
    table = signed.out / "findings.parquet"
    pq.write_table(pq.read_table(table).slice(1), table)
    assert named(signed.verify()) == {"findings.json", "findings.parquet"}


def test_what_an_older_version_wrote_beside_the_statements_is_an_output_like_any_other(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    out, evidence = samples.write_signed(tmp_path, key)
    index = out / "statement/row-checksums.json"
    index.write_bytes(b"[]\n")
    said = {"path": "statement/row-checksums.json", "bytes": 3, "sha256": hashlib.sha256(b"[]\n").hexdigest()}
    for path in out.glob("statement/*--*.json"):
        document = json.loads(path.read_bytes())
        document["outputs"].append(said)
        path.write_bytes(canonical(document))
        path.with_suffix(".sig").write_bytes(key.sign(canonical(document)))
    assert verify_statements(out, key.public, evidence=evidence).verdict == "verified"
    index.write_bytes(b"[1]\n")
    assert lines(verify_statements(out, key.public, evidence=evidence)) == f"statement/row-checksums.json: {ALTERED}"


@pytest.mark.parametrize(
    "name", ["out/findings.parquet", f"evidence/{OUTBOX}", "evidence/evidence.json", "out/statement/inputs.json"]
)
def test_a_missing_file_is_named(signed: Signed, name: str) -> None:
    signed.path(name).unlink()
    report = signed.verify()
    assert report.exit_code == 1
    assert f"{signed.shown(name)}: missing" in lines(report)


def test_a_file_put_into_the_evidence_is_named(signed: Signed) -> None:
    added = signed.evidence / "outbox/prefix=01/part-9.parquet"
    samples.write_rows(added, samples.table_rows("more"))
    try:
        report = signed.verify()
    finally:
        added.unlink()
    assert "evidence:outbox/prefix=01/part-9.parquet: was not there when" in lines(report)


def test_truncated_and_foreign_evidence_is_found_and_never_raises(signed: Signed) -> None:
    path = signed.evidence / OUTBOX
    for data in (b"", b"PAR1", path.read_bytes()[:-20], b"\0" * 5000):
        path.write_bytes(data)
        report = signed.verify()
        assert report.exit_code == 1
        assert named(report) == {f"evidence:{OUTBOX}"}


def test_everything_altered_at_once_is_told_at_once(signed: Signed) -> None:
    for name, data in signed.files.items():
        signed.path(name).write_bytes(data + b" ")
    report = signed.verify()
    unsigned = {signed.shown(name) for name in signed.files if not name.endswith(".sig")}
    assert report.exit_code == 1
    assert {name for name in unsigned if not name.startswith("evidence:")} <= named(report)
    assert not any(one.signature_holds for one in report.statements)
