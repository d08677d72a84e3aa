"""Who verifies, makes a key or asks for help has neither PySpark nor Java, and needs neither."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.audit import signed_samples as samples
from tests.audit.audit_process import MODULE, run

#: First on Python's path: every import of PySpark fails as it does where it is not installed.
NO_PYSPARK = "raise ModuleNotFoundError('No module named \\'pyspark\\'', name='pyspark')\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "pyspark.py").write_text(NO_PYSPARK)
    path = os.pathsep.join([str(blocked), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PATH": str(blocked), "JAVA_HOME": "", "PYTHONPATH": path}


def test_a_key_is_made_and_a_statement_verified(tmp_path: Path, environment: dict[str, str]) -> None:
    key, public = samples.new_key(tmp_path)
    out, evidence = samples.write_signed(tmp_path, key)
    made = run([*MODULE, "statement", "keygen", tmp_path / "new.pem"], environment=environment)
    assert (made.exit_code, made.stderr) == (0, "")
    asked = ("--public-key", public, "--evidence", evidence)
    verified = run([*MODULE, "statement", "verify", out, *asked], environment=environment)
    assert (verified.exit_code, verified.stderr) == (0, "")


#: One process asks every command for help; those of the audit end it, as argparse does.
ASK_FOR_HELP = """
import contextlib, io, sys
from typer.main import get_command
from typer.testing import CliRunner
from reconciler.audit.command import main
from reconciler.cli.app import app
def below(command, names=()):
    yield names
    for name, inner in getattr(command, "commands", {}).items():
        yield from below(inner, (*names, name))
for names in below(get_command(app)):
    if names not in [("audit",), ("statement",)]:
        done = CliRunner().invoke(app, [*names, "--help"])
        print(*names, done.exit_code, len(done.output) > 100)
for names in ("audit", "statement", "statement verify", "statement keygen", "package", ""):
    with contextlib.redirect_stdout(io.StringIO()) as told:
        try:
            main([*names.split(), "--help"])
        except SystemExit as ended:
            code = ended.code
    print(names, code, len(told.getvalue()) > 100)
"""


def test_every_help_is_shown(environment: dict[str, str]) -> None:
    ended = run([sys.executable, "-c", ASK_FOR_HELP], environment=environment)
    assert ended.exit_code == 0, ended.stderr
    told = ended.stdout.splitlines()
    assert len(told) > 25
    assert [line for line in told if not line.endswith("0 True")] == []


def test_the_commands_that_start_the_audit_show_its_help(environment: dict[str, str]) -> None:
    for command in ("audit", "statement"):
        ended = run([sys.executable, "-P", "-m", "reconciler", command, "--help"], environment=environment)
        assert (ended.exit_code, ended.stderr) == (0, "")
        assert "usage: reconciler" in ended.stdout
