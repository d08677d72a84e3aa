"""The audit over generated histories whose accidents are known: all of them are found, and nothing else is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.audit_spark_sql import count, register_views
from benchmarks.audit_sql import expected_counts
from benchmarks.generate_history import OPTIONS
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from reconciler.audit.engines.job import judge_here, judge_on_spark
from reconciler.audit.result.classes import LISTED, NAMES, VIOLATIONS
from reconciler.audit.result.values import JudgedWindow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine takes its time; the first one waits for Spark to start, too.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: The least number with which plan_of makes every shape of each kind, and each of them with several of the others.
SEEDS = 12
ROWS = 100_000
ACCIDENTS = {name: 40 for name in OPTIONS if name != "PENDING"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Each of these takes 50 MB; pytest would keep three runs of them."""
    yield tmp_path / "evidence"
    shutil.rmtree(tmp_path / "evidence", ignore_errors=True)


def plan_of(seed: int) -> Plan:
    """Every seed has another shape: groups, lengths of keys, files of a day or of half an hour, in order or not."""
    lengths = [(16,), (28, 33, 16), (16, 17, 28, 32), (32, 17, 33)]
    return Plan(
        rows=ROWS,
        seed=seed,
        # Young keys need a grace period that outlasts the window, so only some histories have PENDING.
        accidents={**ACCIDENTS, **({"PENDING": 40} if seed % 5 == 0 else {})},
        topics=1 + seed % 3,
        groups=2 if seed % 4 == 3 else 1,
        shards=(16, 4)[seed % 2],
        key_lengths=lengths[seed % 4],
        compacted=seed % 7 != 2,
        files_twice=seed % 6 == 4,
        shuffled=seed % 3 == 1,
        # Every third window has a midnight in it, and with it a snapshot in its middle.
        middle_offset_seconds=0 if seed % 3 == 0 else 30_000,
    )


TWISTED = Plan(rows=4_000, seed=3, accidents=ACCIDENTS, groups=2, shards=4, key_lengths=(16, 17, 28, 32, 33))


def found_in(judged: JudgedWindow) -> set[tuple[str, str, str, str]]:
    """(topic, group, class, key) of all findings; none is there twice."""
    found = {(one.topic, one.group, one.class_name, one.key) for one in judged.findings}
    assert len(found) == len(judged.findings)
    return found


def planted_in(expected: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    """The same of expected.json."""
    return {
        (asked["topic"], asked["group"], name, key)
        for asked in expected["subscriptions"]
        for name, keys in asked["keys"].items()
        if name in LISTED
        for key in keys
    }


def assert_all_found_and_nothing_else(judged: JudgedWindow, expected: dict[str, Any]) -> None:
    assert judged.no_answer is None
    assert found_in(judged) == planted_in(expected)
    for asked, answer in zip(expected["subscriptions"], judged.subscriptions, strict=True):
        assert (answer.subscription.topic, answer.subscription.group) == (asked["topic"], asked["group"])
        assert dict(answer.classes) == asked["classes"]


@pytest.mark.promise("U1")
@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, SEEDS))])
def test_all_that_was_planted_is_found_and_nothing_else(spark: SparkSession, folder: Path, seed: int) -> None:
    expected = generate(plan_of(seed), folder)
    assert {name for asked in expected["subscriptions"] for name in asked["keys"]} >= set(ACCIDENTS)
    assert_all_found_and_nothing_else(judge_on_spark(folder, spark), expected)


@pytest.mark.nightly
def test_many_small_files_change_no_answer(folder: Path, tmp_path: Path) -> None:
    """Doubled and shuffled ones: test_judge_against_reference.py."""
    generate(TWISTED, folder)
    generate(replace(TWISTED, compacted=False), tmp_path / "small")
    plain, small = judge_here(folder), judge_here(tmp_path / "small")
    assert small.findings == plain.findings
    assert small.subscriptions == plain.subscriptions


def test_a_window_without_violations_is_clean_whatever_else_happened_in_it(folder: Path) -> None:
    harmless = {name: 200 for name in OPTIONS if name not in VIOLATIONS}
    expected = generate(Plan(rows=5_000, seed=1, accidents=harmless, groups=2), folder)
    judged = judge_here(folder)
    assert_all_found_and_nothing_else(judged, expected)
    assert judged.verdict == "clean"


@pytest.mark.parametrize(
    "violation",
    [
        pytest.param(name, marks=() if name in {"LOST", "DOUBLE_EFFECT"} else pytest.mark.nightly)
        for name in sorted(VIOLATIONS)
    ],
)
def test_one_violation_among_thousands_of_keys_is_never_clean(folder: Path, violation: str) -> None:
    expected = generate(Plan(rows=4_000, seed=7, accidents={violation: 1}), folder)
    judged = judge_here(folder)
    assert_all_found_and_nothing_else(judged, expected)
    assert (judged.violations, judged.verdict) == (1, "violations")


@pytest.mark.nightly
@pytest.mark.spark
def test_plain_spark_sql_counts_the_same_classes(spark: SparkSession, folder: Path) -> None:
    generate(replace(plan_of(3), rows=5_000, files_twice=True), folder)
    register_views(spark, folder)
    assert count(spark, folder) == expected_counts(folder)


@pytest.mark.nightly
@pytest.mark.spark
def test_the_command_lists_what_was_planted_by_key_and_class(folder: Path, tmp_path: Path) -> None:
    generate(replace(plan_of(0), rows=5_000), folder)
    command = [sys.executable, "-m", "reconciler.audit", "audit", "--evidence", str(folder)]
    out = tmp_path / "out"
    done = subprocess.run(
        [*command, "--out", str(out), "--output", "json", "--master", "local[2]"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 1, done.stderr
    planted = json.loads((folder / "planted.json").read_bytes())
    findings = json.loads((out / "findings.json").read_bytes())
    listed = findings["findings"] if isinstance(findings, dict) else findings
    assert {(one["class"], one["key"]) for one in listed} == {
        (name, key) for name in LISTED for key in planted.get(name, [])
    }
    said = json.loads(done.stdout)
    assert said["verdict"] == "violations"
    assert said["engine"].startswith("spark ")
    assert [name for name, keys in said["classes"].items() if keys] == [
        name for name in NAMES if name in planted or name == "EFFECT_IN_TIME"
    ]
