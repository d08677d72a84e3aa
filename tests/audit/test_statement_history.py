"""`statement verify` believes a manifest by the rules of the audit: what is wrong before the head it signed is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem

from reconciler.audit.command import main
from reconciler.audit.history.chain import chain_of, read_chain
from reconciler.audit.history.checkpoint import CHECKPOINT
from reconciler.audit.statement.verify import verify_statements
from reconciler.contract.manifest import canonical_json, entry_name
from tests.audit import signed_samples as samples
from tests.audit.small_evidence import SmallEvidence


def delete(entries: list[Path]) -> None:
    entries[1].unlink()


def swap(entries: list[Path]) -> None:
    first, second = entries[0].read_bytes(), entries[1].read_bytes()
    entries[0].write_bytes(second)
    entries[1].write_bytes(first)


def alter(entries: list[Path]) -> None:
    entries[1].write_bytes(entries[1].read_bytes().replace(b'"writer":"test"', b'"writer":"best"'))


def double(entries: list[Path]) -> None:
    entries[1].write_bytes(entries[0].read_bytes())


def delete_the_first(entries: list[Path]) -> None:
    entries[0].unlink()


def link_elsewhere(entries: list[Path]) -> None:
    elsewhere = entries[0].rename(entries[0].parents[3] / "elsewhere.json")
    entries[0].symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("accident", "told"),
    [
        (delete, "entry 000000000002.json is missing, 000000000003.json follows"),
        (swap, "000000000001.json: says it is entry 2: doubled or renamed"),
        (alter, "000000000003.json: does not follow 000000000002.json: one of them was altered"),
        (double, "000000000002.json: says it is entry 1: doubled or renamed"),
        (delete_the_first, "entry 000000000001.json is missing, 000000000002.json follows"),
    ],
)
def test_a_manifest_that_the_audit_refuses_is_a_difference(
    tmp_path: Path, accident: Callable[[list[Path]], None], told: str
) -> None:
    key, _ = samples.new_key(tmp_path)
    out, evidence = samples.write_signed(tmp_path, key)
    accident(samples.entries_of(evidence))
    refused = read_chain(LocalFileSystem(), str(evidence / "history"), "production").problems
    assert any(told in line for line in refused)

    report = verify_statements(out, key.public, evidence=evidence)
    assert {(one.file, one.message) for one in report.differences} == {("evidence:history", one) for one in refused}

    moved = (evidence / "history").rename(tmp_path / "moved")
    report = verify_statements(out, key.public, evidence=evidence, history=str(moved))
    assert {one.message for one in report.differences} == set(refused)


def test_entries_that_came_after_the_signed_head_are_looked_at_too(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    out, evidence = samples.write_signed(tmp_path, key)
    entry = samples.add_entry(evidence)
    assert verify_statements(out, key.public, evidence=evidence).verdict == "verified"
    entry.unlink()
    samples.add_entry(evidence, previous="0" * 64)
    (difference,) = verify_statements(out, key.public, evidence=evidence).differences
    assert "000000000004.json: does not follow 000000000003.json" in difference.message


def test_an_entry_that_is_a_link_is_no_part_of_the_chain(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    out, evidence = samples.write_signed(tmp_path, key)
    link_elsewhere(samples.entries_of(evidence))
    (difference,) = verify_statements(out, key.public, evidence=evidence).differences
    assert "entry 000000000001.json is missing" in difference.message


FILE: dict[str, Any] = {
    "date": "2026-11-20", "first_ms": 0, "last_ms": 0, "path": "a", "prefix": None, "rows": 1, "sha256": "",
    "size_bytes": 1, "stream": "gap",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"added": 5}, "is no list"),
        ({"removed": {"a": 1}}, "is no list"),
        ({"removed": [["a"]]}, "which was never added"),
        ({"added": [{"path": ["a"]}]}, "without all its fields"),
        ({"added": [{**FILE, "path": {}}]}, "a field of another type"),
        ({"added": [{**FILE, "stream": []}]}, "a field of another type"),
        ({"added": [{**FILE, "rows": "1"}]}, "a field of another type"),
        ({"kept_from": "2026-01-01", "removed": ["gap/date=2026-99-99/a.parquet"]}, "a day that is no date"),
    ],
)
def test_an_entry_of_another_shape_is_told_and_never_raises(fields: dict[str, Any], told: str) -> None:
    entry = {"environment": "production", "previous": "", "sequence": 1, "version": 1, **fields}
    chain = chain_of("production", [entry_name(1)], lambda _name: canonical_json(entry))
    assert any(told in line for line in chain.problems), chain.problems


def test_an_entry_that_is_nested_without_end_is_told_and_never_raises() -> None:
    (problem,) = chain_of("production", [entry_name(1)], lambda _name: b"[" * 100_000).problems
    assert "no JSON" in problem


def test_a_file_whose_day_leads_out_of_the_history_is_refused(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    samples.make_evidence(evidence)
    folder = "announced/environment=production/date="
    file = samples.history_file(evidence, f"history/{folder}2026-11-20/prefix=00/a.parquet")
    outside = "../../../../.."
    file = replace(file, date=outside, path=f"{folder}{outside}/prefix=00/a.parquet")
    samples.add_entry(evidence, added=(file,))
    (problem,) = read_chain(LocalFileSystem(), str(evidence / "history"), "production").problems
    assert "lies in a folder of other rows" in problem


@dataclass(frozen=True)
class Audited:
    """An evidence folder, a key, and the output that it has signed: `first`."""

    folder: Path

    def audit(self, out: str, *more: str) -> int:
        asked = ["audit", "--evidence", str(self.folder / "evidence"), "--out", str(self.folder / out)]
        return main([*asked, "--engine", "here", "--output", "json", *more])

    def next(self, *more: str) -> int:
        """Of a series: each has the same key."""
        return self.audit("next", "--public-key", str(self.folder / "key.pem.pub"), *more)

    @property
    def previous(self) -> tuple[str, str]:
        return ("--previous", str(self.folder / "first"))

    def notes(self) -> list[str]:
        notes: list[str] = json.loads((self.folder / "next" / "result.json").read_text())["notes"]
        return [note for note in notes if "manifest" in note]


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    evidence = SmallEvidence()
    evidence.add("snapshot")
    evidence.story(bytes(16))
    evidence.write(tmp_path / "evidence")
    assert main(["statement", "keygen", str(tmp_path / "key.pem")]) == 0
    found = Audited(tmp_path)
    assert found.audit("first", "--signing-key", str(tmp_path / "key.pem")) == 0
    return found


def test_the_next_audit_reads_the_manifest_from_where_the_signed_one_has_verified_it_and_the_first_one_all(
    audited: Audited,
) -> None:
    verified = verify_statements(audited.folder / "first", audited.folder / "key.pem.pub")
    assert (verified.verdict, verified.differences) == ("verified", [])
    whole = (audited.folder / "first" / "findings.parquet").read_bytes()
    for more, notes in ((audited.previous, 1), ((*audited.previous, "--whole-chain"), 0), ((), 0)):
        assert audited.next(*more) == 0
        assert len(audited.notes()) == notes
        assert (audited.folder / "next" / "findings.parquet").read_bytes() == whole


def _other_key(audited: Audited) -> None:
    (audited.folder / "key.pem").unlink()
    (audited.folder / "key.pem.pub").unlink()
    assert main(["statement", "keygen", str(audited.folder / "key.pem")]) == 0


def _altered(audited: Audited) -> None:
    path = audited.folder / "first" / CHECKPOINT
    path.write_bytes(path.read_bytes().replace(b"test", b"best", 1))


def _unsigned(audited: Audited) -> None:
    for path in (audited.folder / "first" / "statement").glob("*.sig"):
        path.unlink()


def _gone(audited: Audited) -> None:
    (audited.folder / "first" / CHECKPOINT).unlink()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_other_key, "no statement in it is signed by the key of --public-key"),
        (_unsigned, "no statement in it is signed by the key of --public-key"),
        (_altered, f"{CHECKPOINT} is not the signed one"),
        (_gone, f"{CHECKPOINT} cannot be read"),
    ],
)
def test_what_this_auditor_has_not_signed_is_not_believed_of_a_manifest(
    audited: Audited, damage: Callable[[Audited], None], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(audited)
    assert audited.next(*audited.previous) == 2
    assert told in json.loads(capsys.readouterr().out.splitlines()[-1])["message"]
    assert audited.next("--whole-chain", *audited.previous) == 0
