"""The demo's last step: the audit's answer, compared with the databases that the demo leaves."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command import reconciler
from tests.ended import Ended

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

GROUPS = ("reference", "lagging")


def demo(keep: Path, *more: str, environment: dict[str, str] | None = None) -> Ended:
    numbers = ("--messages", "60", "--lose", "8", "--seed", "21", "--keep", keep, "--output", "json")
    return reconciler("demo", *numbers, *more, environment=environment, timeout_seconds=1500)


def keys(database: Path, sql: str) -> set[str]:
    with closing(sqlite3.connect(database)) as db:
        return {row[0] for row in db.execute(sql)}


def findings(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "audit" / "findings.json").read_text())
    return found


def test_after_the_repairs_the_audit_says_clean(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    ended = demo(folder)
    assert ended.exit_code == 0, ended.stderr
    assert ended.document["audit"]["verdict"] == "clean"
    classes = Counter(ended.document["audit"]["classes"])
    committed = keys(folder / "orders.db", "SELECT unique_key FROM reconciler_outbox WHERE state <> 'ROLLED_BACK'")
    sent = keys(folder / "ledger.db", "SELECT unique_key FROM reconciler_repair WHERE attempts > 0")
    applied = [keys(folder / f"{group}.db", "SELECT unique_key FROM reconciler_inbox") for group in GROUPS]
    assert classes["REPAIRED"] == sum(len(sent & of) for of in applied) == 16
    effects = ("REPAIRED", "EFFECT_IN_TIME", "EFFECT_LATE")
    assert sum(classes[name] for name in effects) == sum(map(len, applied)) == 2 * len(committed)
    assert {finding["class"] for finding in findings(folder)} <= {"EFFECT_LATE"}
    assert (folder / "audit" / "report.html").is_file()


@pytest.mark.nightly
def test_without_repairs_the_audit_finds_exactly_the_injected_losses(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    ended = demo(folder, "--repair", "off")
    assert ended.exit_code == 1, ended.stderr
    assert ended.document["audit"]["verdict"] == "violations"
    injected = keys(folder / "truth.db", "SELECT key FROM attempts WHERE fate NOT IN ('deliver', 'roll-back')")
    committed = keys(folder / "orders.db", "SELECT unique_key FROM reconciler_outbox WHERE state <> 'ROLLED_BACK'")
    lost = [f for f in findings(folder) if f["class"] != "EFFECT_LATE"]
    assert {finding["class"] for finding in lost} == {"LOST"}
    for group in GROUPS:
        applied = keys(folder / f"{group}.db", "SELECT unique_key FROM reconciler_inbox")
        told = {finding["key"] for finding in lost if finding["group"].endswith(group)}
        assert told == injected == committed - applied
        assert len(told) == 8


@pytest.mark.nightly
def test_without_java_the_audit_judges_without_spark_and_says_why(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "HOME": os.environ.get("HOME", str(tmp_path))}
    ended = demo(tmp_path / "demo", environment=environment)
    assert ended.exit_code == 0, ended.stderr
    assert ended.document["audit"]["verdict"] == "clean"
    assert [line for line in ended.stderr.splitlines() if "judges without Spark: Java is missing" in line]
