"""What becomes of a command whose reader has gone, whose disk is full or whose streams are closed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.command import RECONCILER
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.acceptance.marked_secrets import require_unmarked
from tests.services.ports import free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.redis]


@pytest.fixture
def deployed(new_deployment: DeploymentFactory) -> Deployment:
    return new_deployment()


def shell(deployed: Deployment, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One line of bash; $R is the command, $C its settings."""
    ended = subprocess.run(
        ["/bin/bash", "-c", line],
        env={**os.environ, "R": str(RECONCILER), "C": str(deployed.config), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    require_unmarked(ended.stdout, ended.stderr)
    return ended


@pytest.mark.parametrize("output", ["table", "json"])
def test_reader_that_has_gone_does_not_make_a_standstill_look_calm(deployed: Deployment, output: str) -> None:
    away = {"RECONCILER_REDIS__URL": f"redis://127.0.0.1:{free_port()}"}
    ended = shell(deployed, f'"$R" status -o {output} --config "$C" | :; exit "${{PIPESTATUS[0]}}"', **away)
    assert ended.returncode == 3, ended.stderr
    assert ("away: redis" in ended.stderr) is (output == "json")  # else it is told where the table would be
    assert "Traceback" not in ended.stderr


def test_answer_that_did_not_fit_on_the_disk_is_no_answer(deployed: Deployment) -> None:
    ended = shell(deployed, '"$R" status -o json --config "$C" > /dev/full')
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == "reconciler: standard output is incomplete: No space left on device"
    log_is_lost = shell(deployed, '"$R" status -o json --config "$C" 2> /dev/full')
    assert log_is_lost.returncode == 0
    assert json.loads(log_is_lost.stdout)["away"] == []


def test_closed_streams_are_nothing_that_a_database_is_printed_into(deployed: Deployment) -> None:
    before = Path(deployed.ledger).read_bytes()[:16]
    ended = shell(deployed, '"$R" status --config "$C" >&- 2>&-')
    assert (ended.returncode, ended.stdout) == (0, "")
    assert Path(deployed.ledger).read_bytes()[:16] == before
    unasked = shell(deployed, '"$R" once -o json --config "$C" <&-')
    assert unasked.returncode == 0, unasked.stderr


@pytest.mark.parametrize("line", ['"$R" statement keygen key.pem >&-', '"$R" statement keygen key.pem >&- 2>&- <&-'])
def test_closed_output_of_the_audit_is_no_verdict(tmp_path: Path, line: str) -> None:
    ended = subprocess.run(
        ["/bin/bash", "-c", line],
        env={**os.environ, "R": str(RECONCILER)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "key.pem.pub").exists()


def test_terminal_without_the_letters_gets_escapes_and_valid_json(deployed: Deployment) -> None:
    shell(deployed, '"$R" hold "$T" --reason "zu viele \U0001f525 Verluste" --config "$C"', T=deployed.topic)
    table = shell(deployed, '"$R" status --config "$C"', PYTHONIOENCODING="ascii")
    assert table.returncode == 0, table.stderr
    status = shell(deployed, '"$R" status -o json --config "$C"', PYTHONIOENCODING="ascii")
    assert json.loads(status.stdout)["holds"][0]["reason"] == "zu viele \U0001f525 Verluste"
