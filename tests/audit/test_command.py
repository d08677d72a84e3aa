"""What the command refuses before anything is started: exit code 2, the reason, and never a result."""

from __future__ import annotations

import ast
import json
import sys
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.audit import streams
from reconciler.audit.command import main
from reconciler.audit.engines.package import write_zip
from reconciler.audit.engines.spark import require_java
from reconciler.audit.errors import AuditError
from reconciler.audit.output.folder import claim_output
from tests.audit.audit_process import run
from tests.audit.small_evidence import SmallEvidence
from tests.settings_file import settings_file

WINDOW = "2026-03-01T00:00Z/2026-03-01T01:00Z"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return settings_file(tmp_path, "unique_key_topic.queues = 1")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    assert main([*map(str, arguments), "--output", "json"]) == 2
    told = capsys.readouterr()
    document: dict[str, Any] = json.loads(told.out)
    assert document["verdict"] == "no answer"
    assert document["classes"] == {}
    assert {"violations", "gaps", "rows", "seconds", "engine"} <= document.keys()
    assert f"no answer ({document['reason']})" in told.err
    return document


def asked(file: Path, out: Path, *more: str) -> list[str | Path]:
    return ["audit", "--window", WINDOW, "--subscriptions", file, "--history", "/nowhere", "--out", out, *more]


@pytest.mark.parametrize(
    ("more", "reason", "message"),
    [
        (["--window", "2026-03-01/2026-03-02"], "usage", "add an offset or a zone"),
        (["--outbox", "shop"], "usage", "--outbox: expected GROUP=URL"),
        (["--outbox", "store=sqlite:///x.db"], "usage", "FILE has no such producer group; it has shop"),
        (
            ["--inbox", "ORDERS/shipping=sqlite:///x.db"],
            "usage",
            "FILE has no such subscription; it has ORDERS/billing",
        ),
        (["--inbox", "billing=sqlite:///x.db"], "usage", "expected TOPIC/GROUP"),
        (["--inbox", "ORDERS/billing=sqlite:///x.db", "--inbox", "ORDERS/billing=sqlite:///x.db"], "usage", "twice"),
        (["--effects", "ORDERS/billing=sqlite:///x.db"], "usage", "one SELECT"),
        (["--effects", "ORDERS/billing=sqlite:///x.db#DELETE FROM payments"], "usage", "one SELECT"),
        (["--effects", "ORDERS/billing=sqlite:///x.db#SELECT 1; DROP TABLE x"], "usage", "one SELECT"),
        (["--ledger", "redis://localhost/0"], "usage", "expected a SQLAlchemy URL of sqlite"),
        (["--ledger", "@/nowhere/url"], "usage", "cannot be read; it should hold the URL"),
        (["--only", "ORDERS/shipping"], "usage", "--only ORDERS/shipping"),
        (["--spark", "memory=4g"], "usage", "expected NAME=VALUE"),
        (["--signing-key", "/nowhere/key"], "usage", "--signing-key"),
        (["--evidence", "/nowhere"], "usage", "beside --evidence"),
        (["--unknown"], "usage", "unrecognized arguments"),
        (["--no-history"], "usage", "not allowed with argument --history"),
        (["--subscriptions", "/nowhere.toml"], "configuration", "cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path, more: list[str], reason: str, message: str
) -> None:
    document = refused(capsys, *asked(file, tmp_path / "out", *more))
    assert document["reason"] == reason
    assert message in document["message"]
    assert not (tmp_path / "out").exists()


def test_a_history_that_was_forgotten_is_asked_for(
    capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path
) -> None:
    document = refused(
        capsys, "audit", "--window", WINDOW, "--subscriptions", file, "--out", tmp_path / "out", "--outbox", "shop=x"
    )
    assert (document["reason"], "--history (or --no-history)" in document["message"]) == ("usage", True)


def test_a_password_in_a_wrong_url_is_not_repeated(
    capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path
) -> None:
    for url in ("oracle://auditor:hunter2@host/db", "postgresql:auditor:hunter2@host/db"):
        document = refused(capsys, *asked(file, tmp_path / "out", "--ledger", url, "--outbox", f"shop={url}"))
        assert "hunter2" not in document["message"]


HOSTILE = "a\x1b[2J\x1b]52;c;cm0=\x07\x9b31m\x7f\u202eb\u200b\r\nverdict: clean\x85c"


@pytest.mark.parametrize("output", ["text", "json"])
def test_what_strangers_named_is_shown_on_a_terminal_and_not_obeyed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, output: str
) -> None:
    folder = tmp_path / HOSTILE.replace("/", "")
    assert main(["audit", "--evidence", str(folder), "--out", str(tmp_path / "out"), "--output", output]) == 2
    assert main(["audit", "--out", str(tmp_path), f"--{HOSTILE}", "--output", output]) == 2
    told = capsys.readouterr()
    text = told.out + told.err
    assert not {letter for letter in text if unicodedata.category(letter)[0] == "C"} - {"\n"}
    assert "\nverdict: clean" not in text
    assert "\\u{001B}[2J" in told.err
    if output == "json":
        assert HOSTILE in json.loads(told.out.splitlines()[-1])["message"]


def test_the_lines_of_an_answer_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    streams.answer(streams.lines([f"note: {HOSTILE}", "report: here"]))
    told = capsys.readouterr().out
    assert [line[:6] for line in told.splitlines()] == ["note: ", "  verd", "report"]
    assert not {letter for letter in told if unicodedata.category(letter)[0] == "C"} - {"\n"}


def test_evidence_that_is_not_there_is_inputs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = refused(capsys, "audit", "--evidence", tmp_path, "--out", tmp_path / "out")
    assert (document["reason"], "no evidence.json" in document["message"]) == ("inputs", True)


def test_two_audits_into_one_out_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    evidence = SmallEvidence().write(tmp_path / "evidence")
    with claim_output(tmp_path / "out"):
        document = refused(capsys, "audit", "--evidence", evidence, "--out", tmp_path / "out")
    assert document["reason"] == "usage"
    assert "another audit is writing it" in document["message"]


def test_a_folder_of_something_else_is_not_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    evidence = SmallEvidence().write(tmp_path / "evidence")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    document = refused(capsys, "audit", "--evidence", evidence, "--out", tmp_path / "out")
    assert document["reason"] == "usage"
    assert (tmp_path / "out" / "thesis.txt").read_text() == "years of work"


def test_a_missing_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"Java is missing.*openjdk-17") as refusal:
        require_java({"PATH": str(tmp_path)})
    assert refusal.value.reason == "configuration"


@pytest.mark.parametrize(("told", "message"), [('version "11.0.2"', "is Java 11"), ("hello", "does not tell")])
def test_a_java_that_is_too_old_is_named(tmp_path: Path, told: str, message: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk {told}' >&2\n")
    program.chmod(0o755)
    with pytest.raises(AuditError, match=message) as refusal:
        require_java({"JAVA_HOME": str(tmp_path)})
    assert refusal.value.reason == "configuration"


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "sqlalchemy"])
def test_a_missing_package_names_the_extra(package: str) -> None:
    code = (
        f"import runpy, sys; sys.modules['{package}'] = None; "
        "sys.argv = ['audit', 'audit', '--out', '/nowhere', '--output', 'json']; "
        "runpy.run_module('reconciler.audit', run_name='__main__')"
    )
    ended = run([sys.executable, "-c", code])
    assert ended.exit_code == 2, ended.stderr
    assert (ended.document["verdict"], ended.document["reason"]) == ("no answer", "configuration")
    assert "the extra audit" in ended.document["message"]


def test_reconciler_audit_is_the_same_command(tmp_path: Path) -> None:
    ended = run([sys.executable, "-P", "-m", "reconciler", "audit", "--out", tmp_path / "out", "--output", "json"])
    assert ended.exit_code == 2, ended.stderr
    assert ended.document["reason"] == "usage"
    told = run([sys.executable, "-P", "-m", "reconciler", "audit", "--help"])
    assert told.exit_code == 0
    assert "--window START/END" in told.stdout


def test_keys_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statement", "keygen", str(tmp_path / "key")]) == 0
    assert "fingerprint" in capsys.readouterr().out
    assert main(["statement", "keygen", str(tmp_path / "key")]) == 2


def test_the_package_for_spark_submit_is_the_same_bytes_every_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        assert main(["package", str(tmp_path / name)]) == 0
    capsys.readouterr()
    one, two = ((tmp_path / name / "reconciler_audit.zip").read_bytes() for name in ("one", "two"))
    assert one == two


def test_the_package_for_spark_submit_lacks_a_module_that_it_imports(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_zip(tmp_path / "audit.zip")) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")}
    modules = {name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".") for name in texts}
    # The service's half of reading settings, which no audit calls, is imported in a function.
    wanted = {
        module
        for name, text in texts.items()
        for module in _imports(ast.parse(text), in_functions="/settings/" not in name)
        if module.startswith("reconciler")
    }
    assert wanted <= modules


def _imports(node: ast.AST, *, in_functions: bool) -> Iterator[str]:
    """Modules imported when the code runs; all are written as `from module import name`."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.FunctionDef) and not in_functions:
        return
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, in_functions=in_functions)
