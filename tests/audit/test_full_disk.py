"""A disk that fills up at any byte leaves no half result, the older one as it was, and never a wrong exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.audit.command import main
from tests.audit.audit_process import MODULE
from tests.audit.full_disk import require_small_disks, run_on_small_disk
from tests.audit.small_evidence import SmallEvidence


def evidence(folder: Path, *, keys: int) -> Path:
    found = SmallEvidence()
    for number in range(keys):
        found.story(bytes([number + 1]) * 16)
    found.add("outbox", bytes(16))
    return found.write(folder)


def test_a_disk_that_fills_up_at_any_page_leaves_what_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_small_disks()
    assert main(["statement", "keygen", str(tmp_path / "key.pem")]) == 0
    capsys.readouterr()
    place = tmp_path / "small"
    place.mkdir()
    one, other = evidence(tmp_path / "one", keys=3), evidence(tmp_path / "other", keys=5)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.audit.full_disk_sweep",
        place,
        one,
        other,
        tmp_path / "key.pem",
    ]
    ended = run_on_small_disk(command, place, pages=4_000)
    assert ended.exit_code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["wrong"] == []
    assert found["failed"] > found["pages"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["statement", "keygen", "KEY"], marks=pytest.mark.nightly),
        ["audit", "--out", "OUT", "--output", "json"],
    ],
)
def test_an_answer_that_could_not_be_written_is_none(tmp_path: Path, arguments: list[str]) -> None:
    names = {"KEY": str(tmp_path / "key.pem"), "OUT": str(tmp_path / "out")}
    with open("/dev/full", "wb") as full:
        command = [*MODULE, *(names.get(argument, argument) for argument in arguments)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=170)
        deaf = subprocess.run(command, stdout=full, stderr=full, timeout=170)
    assert (done.returncode, deaf.returncode) == (2, 2), done.stderr
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_half_a_key_is_no_key(tmp_path: Path) -> None:
    require_small_disks()
    place = tmp_path / "small"
    place.mkdir()
    for inodes, pages in ((8, 1), (2, 8)):  # the public one takes the only page, or the last inode
        command: list[str | Path] = [*MODULE, "statement", "keygen", place / "key.pem", "--output", "json"]
        ended = run_on_small_disk(command, place, pages=pages, inodes=inodes)
        assert ended.exit_code == 2, ended.stderr
        assert ended.document["reason"] == "engine"
        assert "No space left" in ended.document["message"]
        assert ended.there == {}
