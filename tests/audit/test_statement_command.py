"""`reconciler statement`: exit codes, the JSON object, and lines that a terminal does not obey."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.audit.command import main
from reconciler.audit.output.writing import write_output
from tests.audit import judged_samples
from tests.audit import signed_samples as samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    key, public = samples.new_key(folder)
    samples.write_signed(folder, key)
    public.rename(folder / "public.pem")
    return folder


def verify(folder: Path, *arguments: str) -> int:
    return main(["statement", "verify", str(folder / "outs"), "--public-key", str(folder / "public.pem"), *arguments])


def test_an_unaltered_output_is_0_and_says_how_much_was_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(folder, "--evidence", str(folder / "evidence-0"), "--output", "json") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["differences"], document["not_checked"]) == ("verified", [], [])
    assert [one["group"] for one in document["statements"]] == ["billing", "stock", "ledger"]


def test_without_the_evidence_it_says_that_inputs_were_not_looked_at(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(folder) == 0
    assert "not checked: the inputs: name the evidence with --evidence DIR" in capsys.readouterr().out


def test_an_altered_output_is_1_and_its_file_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = folder / "outs/day-0/result.json"
    before = result.read_bytes()
    result.write_bytes(before.replace(b'"verdict":"violations"', b'"verdict":"\\u001b[2Kfine"', 1))
    try:
        assert verify(folder) == 1
    finally:
        result.write_bytes(before)
    printed = capsys.readouterr().out
    assert "DIFFERS day-0/result.json: altered" in printed
    assert "DIFFERS day-0/result.json: /verdict: the statement of ORDERS/billing says " in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("name", ["nowhere", "outs/day-0/report.html"])
def test_a_key_that_is_none_is_2(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    arguments = ["statement", "verify", str(folder / "outs"), "--public-key", str(folder / name), "--output", "json"]
    assert main(arguments) == 2
    assert json.loads(capsys.readouterr().out)["reason"] == "usage"


def test_a_folder_that_is_not_there_is_2_and_told_under_its_own_option(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = str(folder / "gone")
    assert verify(folder, "--evidence", gone) == 2
    assert f"no answer (inputs): --evidence {gone}: there is no such folder" in capsys.readouterr().err
    assert verify(folder, "--evidence", str(folder / "evidence-0"), "--history", gone) == 2
    assert f"no answer (inputs): --history {gone}: there is no such folder" in capsys.readouterr().err


def test_a_statement_that_nobody_signed_is_not_told_as_a_broken_signature_nor_as_signed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, public = samples.new_key(tmp_path)
    out = write_output(judged_samples.violations(), tmp_path / "out")
    assert main(["statement", "verify", str(out), "--public-key", str(public)]) == 2
    printed = capsys.readouterr().out
    assert printed.count("NOT SIGNED") == len(list(out.glob("statement/*--*.json")))
    assert "DOES NOT HOLD" not in printed
    assert printed.splitlines()[-1].endswith(" files are as the statements say")


def test_keygen_makes_a_pair_that_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statement", "keygen", str(tmp_path / "key.pem"), "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert Path(made["private_key"]).stat().st_mode & 0o777 == 0o600
    assert len(made["fingerprint"]) == 64
    assert main(["statement", "keygen", str(tmp_path / "key.pem")]) == 2
