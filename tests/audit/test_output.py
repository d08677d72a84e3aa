"""OUT: the same bytes for the same judgement, put in place in one step, by one audit at a time."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow.parquet as pq
import pytest

from reconciler.audit.errors import AuditError
from reconciler.audit.output.folder import drafted_output
from reconciler.audit.output.writing import claim_output, write_output
from reconciler.audit.result.values import JudgedWindow
from reconciler.audit.statement.verify import verify_statements
from tests.audit import judged_samples
from tests.audit import signed_samples as samples

T = TypeVar("T")

FILES = {
    "result.json",
    "findings.json",
    "findings.parquet",
    "counts.parquet",
    "volume.json",
    "latency.json",
    "report.html",
}


def mixed(found: Mapping[str, T], seed: int = 7) -> dict[str, T]:
    items = list(found.items())
    random.Random(seed).shuffle(items)
    return dict(items)


def shuffled(judged: JudgedWindow) -> JudgedWindow:
    """The same judgement as another run might hold it: names of dicts, hours and findings in another order."""
    findings = [replace(one, evidence=mixed(one.evidence)) for one in judged.findings]
    random.Random(7).shuffle(findings)
    subscriptions = tuple(
        replace(
            one,
            classes=mixed(one.classes),
            latencies=mixed(one.latencies),
            volume=tuple(reversed([replace(hour, classes=mixed(hour.classes)) for hour in one.volume])),
        )
        for one in judged.subscriptions
    )
    return replace(judged, findings=tuple(findings), subscriptions=subscriptions, rows=mixed(judged.rows))


@pytest.mark.promise("U1")
@pytest.mark.parametrize("name", ["clean", "violations", "no-answer", "empty", "hostile"])
def test_the_same_judgement_gives_the_same_bytes_in_every_file(tmp_path: Path, name: str) -> None:
    judged = judged_samples.SAMPLES[name]()
    one = write_output(judged, tmp_path / "one", zone="Asia/Shanghai")
    other = write_output(shuffled(judged), tmp_path / "elsewhere" / "other", zone="Asia/Shanghai")
    assert samples.files_of(one) == samples.files_of(other)
    assert set(samples.files_of(one)) >= FILES


def test_another_process_with_other_hashes_of_strings_gives_the_same_bytes(tmp_path: Path) -> None:
    here = write_output(judged_samples.violations(), tmp_path / "here")
    program = (
        "import sys; from tests.audit import judged_samples; from reconciler.audit.output.writing import write_output;"
        "write_output(judged_samples.violations(), sys.argv[1])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "TZ": "Pacific/Chatham", "LC_ALL": "C"}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program, tmp_path / "there"], env=environment, cwd=root, check=True)
    assert samples.files_of(here) == samples.files_of(tmp_path / "there")


def test_signed_outputs_are_the_same_bytes_too(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    judged = samples.judged_of(tmp_path / "evidence")
    outs = [
        write_output(judged, tmp_path / name, signing_key=key, evidence=tmp_path / "evidence") for name in ("a", "b")
    ]
    assert samples.files_of(outs[0]) == samples.files_of(outs[1])


def test_tables_and_documents_say_the_same(tmp_path: Path) -> None:
    judged = judged_samples.violations()
    out = write_output(judged, tmp_path / "out")
    findings = json.loads((out / "findings.json").read_bytes())
    table = pq.read_table(out / "findings.parquet").to_pylist()
    assert [(f["key"], f["class"], f["topic"], f["group"], f["evidence"]) for f in findings] == [
        (row["key"], row["class"], row["topic"], row["consumer_group"], json.loads(row["evidence"])) for row in table
    ]
    counts = pq.read_table(out / "counts.parquet").to_pylist()
    result = json.loads((out / "result.json").read_bytes())
    assert {name: sum(row["keys"] for row in counts if row["class"] == name) for name in result["classes"]} == result[
        "classes"
    ]
    hours = json.loads((out / "volume.json").read_bytes())
    assert sum(hour["keys"] for hour in hours) == sum(result["classes"].values())
    assert (result["verdict"], result["violations"]) == ("violations", 8)


def test_nothing_in_out_tells_when_or_where_it_was_made(tmp_path: Path) -> None:
    out = write_output(judged_samples.violations(), tmp_path / "out")
    for name, data in samples.files_of(out).items():
        assert str(tmp_path).encode() not in data, name
        assert os.uname().nodename.encode() not in data, name


def test_an_older_audit_s_output_is_replaced_with_nothing_left_of_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_output(judged_samples.violations(), out)
    (out / "statement" / "ORDERS--billing.json").rename(out / "statement" / "OLD--group.json")
    write_output(judged_samples.clean(), out)
    assert json.loads((out / "result.json").read_bytes())["verdict"] == "clean"
    assert not (out / "statement" / "OLD--group.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_new_or_empty_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "deep" / "er" / "new", tmp_path / "[a]*?"):
        assert (write_output(judged_samples.empty(), out) / "report.html").is_file()


def test_an_out_that_holds_something_else_is_refused_and_not_touched(tmp_path: Path) -> None:
    photos, file, link = tmp_path / "photos", tmp_path / "file", tmp_path / "link"
    photos.mkdir()
    (photos / "cat.jpg").write_text("miau")
    file.write_text("text")
    link.symlink_to(photos)
    other = tmp_path / "other"
    other.mkdir()
    (other / "result.json").write_text('{"kind":"something else"}')
    for out in (photos, file, link, other):
        with pytest.raises(AuditError, match="name a folder that is new") as raised:
            write_output(judged_samples.clean(), out)
        assert raised.value.reason == "usage"
    assert (photos / "cat.jpg").read_text() == "miau"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "other", "photos"]


def test_two_audits_into_one_out_the_second_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with claim_output(out) as claimed:
        with pytest.raises(AuditError, match="another audit is writing it") as raised, claim_output(out):
            pass
        assert raised.value.reason == "usage"
        write_output(judged_samples.clean(), claimed)
    write_output(judged_samples.violations(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_audit_killed_in_the_middle_leaves_nothing_that_looks_like_a_result(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = (
        "import os, sys; from reconciler.audit.output.folder import claim_output, drafted_output\n"
        "with claim_output(sys.argv[1]) as claimed, drafted_output(claimed) as draft:\n"
        "    draft.write('result.json', b'{}'); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, out], cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -9
    assert not out.exists()
    assert any(path.name.startswith(".out.partial-") for path in tmp_path.iterdir())
    write_output(judged_samples.clean(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Every write beyond fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_leaves_the_older_output_as_it_was(tmp_path: Path) -> None:
    out = write_output(judged_samples.clean(), tmp_path / "out")
    before = samples.files_of(out)
    with pytest.raises(AuditError, match="nothing new was kept") as raised, files_of_at_most(20_000):
        write_output(judged_samples.violations(), out)
    assert raised.value.reason == "engine"
    assert samples.files_of(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_interrupted_draft_goes_away(tmp_path: Path) -> None:
    def interrupted() -> None:
        with claim_output(tmp_path / "out") as claimed, drafted_output(claimed) as draft:
            draft.write("result.json", b"{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_evidence_that_changed_between_judging_and_signing_is_signed_as_it_was_judged(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    judged = samples.judged_of(tmp_path / "evidence")
    outbox = "outbox/prefix=00/part-0.parquet"
    samples.write_rows(tmp_path / "evidence" / outbox, samples.table_rows("other"))
    out = write_output(judged, tmp_path / "out", signing_key=key, evidence=tmp_path / "evidence")
    report = verify_statements(out, key.public, evidence=tmp_path / "evidence")
    assert [one.file for one in report.differences] == [f"evidence:{outbox}"]
