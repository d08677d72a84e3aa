"""Both engines find the same, and the one without Spark works where neither Spark nor Java is."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.audit.arguments import parse
from reconciler.audit.command import main
from reconciler.audit.engines.engine import check_engine
from reconciler.audit.engines.job import judge_here, judge_on_spark
from reconciler.audit.errors import AuditError
from reconciler.audit.output.writing import write_output
from tests.audit.audit_process import run
from tests.audit.random_evidence import random_evidence
from tests.audit.signed_samples import files_of, new_key
from tests.audit.small_evidence import START_MS, SmallEvidence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Files that name the engine; the others must not differ in a byte.
TELL_THE_ENGINE = ("result.json", "report.html", "statement/")
#: Packages that are not there for the process.
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(("pyspark", "py4j")))
sys.argv = ["audit", *sys.argv[1:]]
runpy.run_module("reconciler.audit", run_name="__main__")
"""


def small(folder: Path) -> Path:
    evidence = SmallEvidence()
    evidence.story(bytes([1]) * 16)
    evidence.add("outbox", bytes(16))
    evidence.add("announced", bytes(16))
    evidence.add("candidate", bytes(16))
    return evidence.write(folder)


def without_name(data: bytes, shown: Mapping[str, str]) -> bytes:
    for words in shown.values():
        data = data.replace(words.encode(), b"ENGINE")
    return data


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_both_engines_write_the_same_bytes_but_their_names(spark: SparkSession, tmp_path: Path) -> None:
    evidence = random_evidence(5, keys=400)
    evidence.add("reread", at_ms=START_MS + 60_000)
    folder = evidence.write(tmp_path / "evidence", parts=2)
    here = files_of(write_output(judge_here(folder), tmp_path / "here", engine="here"))
    there = files_of(write_output(judge_on_spark(folder, spark), tmp_path / "spark", engine="spark"))
    assert here.keys() == there.keys()
    assert json.loads(here["findings.json"])
    assert b"Redis lost its memory" in here["result.json"]
    assert [path for path in here if not path.startswith(TELL_THE_ENGINE) and here[path] != there[path]] == []
    for path, shown in (
        ("report.html", {"here": "in one process (--engine here)", "spark": "on Spark"}),
        ("result.json", {"here": '"engine":"here"', "spark": '"engine":"spark"'}),
    ):
        assert shown["here"].encode() in here[path]
        assert shown["spark"].encode() in there[path]
        assert without_name(here[path], shown) == without_name(there[path], shown)


def test_the_statement_names_its_engine_and_another_name_is_an_alteration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, public = tmp_path / "auditor.pem", new_key(tmp_path)[1]
    out = tmp_path / "out"
    asked = ["audit", "--evidence", str(small(tmp_path / "evidence")), "--engine", "here", "--out", str(out)]
    assert main([*asked, "--signing-key", str(secret)]) == 1
    verify = ["statement", "verify", str(out), "--public-key", str(public), "--evidence", str(tmp_path / "evidence")]
    assert main(verify) == 0
    (statement,) = (path for path in (out / "statement").glob("*.json") if path.stem == "ORDERS--billing")
    assert json.loads(statement.read_bytes())["engine"] == "here"
    statement.write_bytes(statement.read_bytes().replace(b'"engine":"here"', b'"engine":"spark"'))
    capsys.readouterr()
    assert main(verify) == 1
    assert 'says "spark", the outputs say "here"' in capsys.readouterr().out


def test_an_audit_here_needs_neither_spark_nor_java(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    asked: list[str | Path] = ["audit", "--evidence", small(tmp_path / "evidence"), "--out", tmp_path / "out"]
    nowhere = {"PATH": str(tmp_path / "bin"), "JAVA_HOME": str(tmp_path)}
    ended = run([sys.executable, "-c", WITHOUT, *asked, "--engine", "here", "-o", "json"], environment=nowhere)
    assert ended.exit_code == 1, ended.stderr
    assert ended.document["engine"] == "here"
    assert ended.document["classes"]["LOST"] == ended.document["classes"]["EFFECT_IN_TIME"] == 1

    ended = run([sys.executable, "-c", WITHOUT, *asked, "-o", "json"], environment=nowhere)
    assert (ended.exit_code, ended.document["reason"]) == (2, "configuration")
    assert "--engine here" in ended.document["message"]


@pytest.mark.parametrize("more", [["--master", "local[2]"], ["--spark", "spark.driver.memory=4g"]])
def test_an_option_of_spark_is_not_ignored_where_there_is_none(more: list[str]) -> None:
    options = parse(["audit", "--out", "/nowhere", "--engine", "here", *more])
    with pytest.raises(AuditError, match=f"{more[0]} beside --engine here") as refused:
        check_engine(options)
    assert refused.value.reason == "usage"


@pytest.mark.nightly
def test_a_prefix_that_is_too_large_is_judged_in_slices_that_change_nothing(tmp_path: Path) -> None:
    """What bounds the memory of one process."""
    folder = random_evidence(7, keys=300).write(tmp_path / "evidence", parts=2)
    told: list[int] = []
    assert judge_here(folder, rows_at_once_max=5, progress=told.append) == judge_here(folder)
    assert told == list(range(1, 65))
