"""A judge in SQL, written from the docs' text alone, says of every key what the audit says of it.

Compared is what `reconciler audit` writes: the listed keys one by one, the counted ones by subscription and hour.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from benchmarks.generate_history import OPTIONS
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import CLASSES, Plan
from reconciler.audit.command import main
from reconciler.contract.unique_key import key_of
from tests.audit.docs_judge import SQL, judge
from tests.audit.random_evidence import random_evidence

pytestmark = pytest.mark.timeout(900)

#: Of random evidence, so many that each class has some.
KEYS = 5_000
SEED = 6
MORE_SEEDS = (1, 2, 3, 4, 5, 7, 8, 9)
HOUR_MS = 3_600_000
#: docs/reference/audit-classes.md: the classes whose keys no finding lists, and those that are violations.
COUNTED = {"REPAIRED", "EFFECT_IN_TIME", "FILTERED", "REJECTED", "ROLLED_BACK", "PENDING"}
VIOLATIONS = set(CLASSES[:8])
#: The statements that have the times of keys and the rules, the latter alone, and one rule of it.
TIMES = re.compile(r"CREATE TEMP TABLE placed AS.*", re.DOTALL)
RULES = re.compile(r"CREATE TEMP TABLE judged AS.*", re.DOTALL)
RULE = re.compile(r"    (?:WHEN|ELSE) (?:(?!WHEN|ELSE).)*?'([A-Z_]+)'\n(?=    WHEN|    ELSE|  END)", re.DOTALL)

#: (topic, group, key): class; (topic, group, first millisecond of the hour, class): keys.
Listed = dict[tuple[str, str, str], str]
Counts = Counter[tuple[str, str, int, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one judge says."""

    listed: Listed
    counts: Counts


def said_by_audit(folder: Path, out: Path) -> Answer:
    assert main(["audit", "--engine", "here", "--evidence", str(folder), "--out", str(out)]) == 1
    said = json.loads((out / "result.json").read_bytes())
    counts: Counts = Counter()
    for hour in json.loads((out / "volume.json").read_bytes()):
        for name, keys in hour["classes"].items():
            counts[hour["topic"], hour["group"], hour["hour_start_ms"], name] += keys
    written = pq.read_table(out / "counts.parquet").to_pylist()
    assert {row["class"] for row in written if row["violation"]} == VIOLATIONS
    assert _by_class(counts) == Counter({name: keys for name, keys in said["classes"].items() if keys})
    assert sum(row["keys"] for row in written) == counts.total()
    assert said["violations"] == sum(said["classes"][name] for name in VIOLATIONS)
    findings = json.loads((out / "findings.json").read_bytes())
    listed = {(one["topic"], one["group"], one["key"]): one["class"] for one in findings}
    assert len(listed) == len(findings)
    return Answer(listed, +counts)


def said_by_docs(connection: duckdb.DuckDBPyConnection, table: str = "judged") -> Answer:
    listed: Listed = {}
    counts: Counts = Counter()
    rows = connection.execute(f'SELECT topic, "group", key, time_ms, class FROM {table}').fetchall()
    for topic, group, key, time_ms, name in rows:
        counts[topic, group, time_ms // HOUR_MS * HOUR_MS, name] += 1
        if name not in COUNTED:
            listed[topic, group, key_of(key)] = name
    return Answer(listed, counts)


def _by_class(counts: Counts) -> Counter[str]:
    by_class: Counter[str] = Counter()
    for (_, _, _, name), keys in counts.items():
        by_class[name] += keys
    return +by_class


@pytest.fixture(scope="module")
def contradicting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[duckdb.DuckDBPyConnection, Answer]]:
    """Facts of a key meet on every edge that the docs name; what the docs say, and what the audit says."""
    folder = tmp_path_factory.mktemp("contradicting")
    random_evidence(SEED, KEYS).write(folder / "evidence")
    with judge(folder / "evidence") as judged:
        yield judged, said_by_audit(folder / "evidence", folder / "out")


def test_the_docs_alone_put_every_key_into_the_class_that_the_audit_puts_it_into(
    contradicting: tuple[duckdb.DuckDBPyConnection, Answer],
) -> None:
    judged, answer = contradicting
    assert set(_by_class(answer.counts)) == set(CLASSES)
    assert said_by_docs(judged) == answer


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_that_is_judged_otherwise_is_seen(
    contradicting: tuple[duckdb.DuckDBPyConnection, Answer], name: str
) -> None:
    """Without its rule the keys of the class fall to a later one."""
    judged, answer = contradicting
    rules = RULES.findall(SQL.read_text())[0]
    rule = {found[1]: found[0] for found in RULE.finditer(rules)}[name]
    otherwise = "    ELSE 'LOST'\n" if rule.lstrip().startswith("ELSE") else ""
    judged.execute(rules.replace("TEMP TABLE judged", "OR REPLACE TEMP TABLE otherwise").replace(rule, otherwise))
    said = said_by_docs(judged, "otherwise")
    assert _by_class(said.counts)[name] < _by_class(answer.counts)[name]
    assert said != answer


@pytest.mark.parametrize(
    ("told", "otherwise"),
    [
        ("+ 86400000 THEN", "+ 86400001 THEN"),
        ("THEN seen_ms - late_ms", "THEN row_ms"),
        ("THEN row_ms + 2 * late_ms", "THEN row_ms + late_ms"),
    ],
)
def test_a_time_that_is_told_otherwise_is_seen(
    contradicting: tuple[duckdb.DuckDBPyConnection, Answer], told: str, otherwise: str
) -> None:
    judged, answer = contradicting
    statements = TIMES.findall(SQL.read_text())[0]
    assert told in statements
    moved = statements.replace(told, otherwise).replace("FROM placed", "FROM moved")
    for table, name in (("placed", "moved"), ("judged", "otherwise")):
        moved = moved.replace(f"TEMP TABLE {table}", f"OR REPLACE TEMP TABLE {name}")
    judged.execute(moved)
    assert said_by_docs(judged, "otherwise") != answer


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_the_docs_alone_judge_rows_that_contradict_each_other_as_the_audit_does(tmp_path: Path, seed: int) -> None:
    random_evidence(seed, KEYS).write(tmp_path / "evidence")
    with judge(tmp_path / "evidence") as judged:
        assert said_by_docs(judged) == said_by_audit(tmp_path / "evidence", tmp_path / "out")


@pytest.mark.slow
def test_the_docs_alone_judge_a_million_planted_keys_as_the_audit_does(tmp_path: Path) -> None:
    plan = Plan(
        rows=1_000_000,
        seed=41,
        accidents=dict.fromkeys(OPTIONS, 2_000),
        groups=2,
        shards=4,
        key_lengths=(16, 17, 28, 32),
        files_twice=True,
        shuffled=True,
    )
    generate(plan, tmp_path / "evidence", workers=2)
    with judge(tmp_path / "evidence") as judged:
        assert said_by_docs(judged) == said_by_audit(tmp_path / "evidence", tmp_path / "out")
