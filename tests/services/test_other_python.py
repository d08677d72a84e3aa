"""A Python that is on PATH by name alone is not taken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.services.other_python import main

RELEASE = "3.99"
WORKS = 'case "$2" in *ensurepip*) exit 0;; esac; exit 1'


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in ("shims", "half", "good")]
    monkeypatch.setenv("PATH", ":".join(map(str, folders)))
    monkeypatch.delenv("CI", raising=False)


def test_the_first_one_that_runs_and_makes_environments_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "shims" / f"python{RELEASE}", "echo 'command not found' >&2; exit 127")
    program(tmp_path / "half" / f"python{RELEASE}", "echo \"No module named 'ensurepip'\" >&2; exit 1")
    good = program(tmp_path / "good" / f"python{RELEASE}", WORKS)
    assert main(RELEASE) == 0
    assert capsys.readouterr().out == f"{good}\n"


def test_one_of_a_version_manager_is_taken_where_its_shim_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "shims" / f"python{RELEASE}", "exit 127")
    program(tmp_path / "shims" / "pyenv", f"echo {tmp_path}/managed")
    kept = program(tmp_path / f"managed/versions/{RELEASE}.1/bin/python{RELEASE}", WORKS)
    assert main(RELEASE) == 0
    assert capsys.readouterr().out == f"{kept}\n"


def test_one_of_another_release_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path / "good" / f"python{RELEASE}", f'exec {sys.executable} "$@"')
    assert main(RELEASE) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_none_is_one_line_on_a_laptop_and_a_failure_in_ci(
    *, ci: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", ci)
    assert main(RELEASE) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert f"no Python {RELEASE} with venv works here" in said.err
