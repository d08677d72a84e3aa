"""Coverage: rows not asked about are counted by table, topic and group, and change no other count and no verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.audit.engines.job import judge_here, judge_on_spark
from reconciler.audit.errors import AuditError
from reconciler.audit.output.writing import write_output
from reconciler.audit.result.not_judged import KEPT_MAX, LISTED_MAX, OMITTED, UnjudgedRows, UnjudgedTotals, kept, listed
from reconciler.audit.result.values import JudgedWindow
from reconciler.audit.statement.document import statement_document
from tests.audit.random_evidence import random_evidence
from tests.audit.small_evidence import (
    END_MS,
    START_MS,
    SmallEvidence,
    read_document,
    subscription,
    write_document,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = [bytes([number]) * 16 for number in range(40)]


def told(judged: JudgedWindow) -> dict[tuple[str, str, str], int]:
    return {(one.table, one.topic, one.group): one.rows for one in judged.not_judged.listed}


def with_others() -> SmallEvidence:
    """One clean story, and rows of others in every table."""
    evidence = SmallEvidence()
    evidence.story(KEYS[0])
    for key in KEYS[1:4]:
        evidence.add("outbox", key, topic="REFUNDS", producer_group="tills")
        evidence.add("inbox", key, consumer_group="stock")
        evidence.add("effects", key, topic="REFUNDS", consumer_group="billing")
    evidence.add("outbox", KEYS[4], topic="REFUNDS", producer_group="shop")
    evidence.add("candidate", KEYS[5], consumer_group="stock", state="OPEN")
    evidence.add("repair", KEYS[6], scope="stock", state="OPEN")
    evidence.add("repair", KEYS[7], topic="REFUNDS", scope="*", state="OPEN")
    evidence.add("inbox", KEYS[8], topic="REFUNDS")
    return evidence


OTHERS = {
    ("outbox", "REFUNDS", "tills"): 3,
    ("outbox", "REFUNDS", "shop"): 1,
    ("inbox", "ORDERS", "stock"): 3,
    ("inbox", "REFUNDS", "billing"): 1,
    ("effects", "REFUNDS", "billing"): 3,
    ("candidate", "ORDERS", "stock"): 1,
    ("repair", "ORDERS", "stock"): 1,
    ("repair", "REFUNDS", "*"): 1,
}


def test_rows_of_topics_and_groups_that_nobody_asked_about_are_told_and_change_no_count(tmp_path: Path) -> None:
    alone = SmallEvidence()
    alone.story(KEYS[0])
    judged = judge_here(with_others().write(tmp_path / "with"))
    assert told(judged) == OTHERS
    assert (judged.verdict, judged.classes) == ("clean", judge_here(alone.write(tmp_path / "alone")).classes)
    # The most rows first, then by name: one order, in any order of reading.
    assert list(told(judged)) == sorted(OTHERS, key=lambda name: (-OTHERS[name], name))


@pytest.mark.parametrize("table", ["outbox", "inbox", "effects"])
def test_evidence_of_which_no_row_was_judged_is_not_clean(tmp_path: Path, table: str) -> None:
    quiet_night = judge_here(SmallEvidence().write(tmp_path / "quiet"))
    assert (quiet_night.verdict, quiet_night.messages.get("ORDERS", 0)) == ("clean", 0)
    evidence = SmallEvidence()
    evidence.add(table, KEYS[0], topic="ORDER")
    judged = judge_here(evidence.write(tmp_path / "evidence"))
    assert judged.no_answer is not None
    assert judged.no_answer.reason == "inputs"
    assert f"1 rows of {table} of 'ORDER'" in judged.no_answer.message


def test_a_quiet_topic_of_an_outbox_that_others_use_is_clean(tmp_path: Path) -> None:
    """Only what was asked for became evidence; the others' rows stayed where they are, and were counted there."""
    folder = SmallEvidence().write(tmp_path / "evidence")
    counted = {"table": "outbox", "topic": "REFUNDS", "group": "tills", "rows": 1_000}
    write_document(folder, {**read_document(folder), "not_asked": {"listed": [counted], "omitted_rows": 0}})
    assert judge_here(folder).verdict == "clean"


@pytest.mark.parametrize("padded", [{"topic": "ORDERS   "}, {"group": "billing "}])
@pytest.mark.parametrize("where", ["evidence", "sources"])
def test_names_that_an_export_has_padded_are_not_passed_over(
    tmp_path: Path, padded: dict[str, str], where: str
) -> None:
    """A column of the type CHAR(n) has spaces after its text."""
    names = {"topic": "ORDERS", "group": "billing", **padded}
    evidence = SmallEvidence()
    evidence.story(KEYS[0])
    if where == "evidence":
        evidence.add("inbox", KEYS[1], topic=names["topic"], consumer_group=names["group"])
    folder = evidence.write(tmp_path / "evidence")
    if where == "sources":
        not_asked = {"listed": [{"table": "inbox", "rows": 1, **names}], "omitted_rows": 0}
        write_document(folder, {**read_document(folder), "not_asked": not_asked})
    judged = judge_here(folder)
    assert judged.no_answer is not None
    assert judged.no_answer.reason == "inputs"
    assert f"1 rows of inbox are of {names['topic']!r} and {names['group']!r}" in judged.no_answer.message


def test_what_is_judged_or_of_another_time_is_not_told(tmp_path: Path) -> None:
    evidence = SmallEvidence(subscriptions=[subscription(), subscription(group="stock")])
    for key in KEYS[:5]:
        evidence.story(key)
        evidence.add("inbox", key, consumer_group="stock")
    evidence.add("repair", KEYS[0], scope="*")
    evidence.add("repair", KEYS[0], scope="billing")
    # Judged by its topic, though FILE does not name this producer group for it.
    evidence.add("outbox", KEYS[6], producer_group="other")
    for at_ms in (START_MS - 1, END_MS):
        evidence.add("inbox", KEYS[9], consumer_group="mail", applied_at_ms=at_ms)
        evidence.add("outbox", KEYS[9], topic="REFUNDS", created_at_ms=at_ms)
    judged = judge_here(evidence.write(tmp_path / "evidence"))
    assert judged.not_judged == UnjudgedTotals()


@pytest.mark.nightly
def test_neither_order_nor_files_nor_slices_change_what_is_told(tmp_path: Path) -> None:
    evidence = random_evidence(5, keys=80)
    asked = evidence.subscriptions[:1]
    evidence.subscriptions[:] = asked
    expected = judge_here(evidence.write(tmp_path / "one"))
    assert len(told(expected)) > 5
    for seed in range(1, 4):
        folder = evidence.write(tmp_path / str(seed), seed=seed, parts=seed)
        assert judge_here(folder).not_judged == expected.not_judged
        assert judge_here(folder, rows_at_once_max=5).not_judged == expected.not_judged


@pytest.mark.spark
def test_spark_tells_the_same(spark: SparkSession, tmp_path: Path) -> None:
    folder = with_others().write(tmp_path / "evidence")
    assert judge_on_spark(folder, spark) == judge_here(folder)


def test_more_names_than_a_result_lists_are_counted(tmp_path: Path) -> None:
    evidence = SmallEvidence()
    for number in range(LISTED_MAX + 20):
        for key in KEYS[: 2 if number == 77 else 1]:
            evidence.add("inbox", key, consumer_group=f"group-{number:03d}")
    judged = judge_here(evidence.write(tmp_path / "evidence"))
    first, *rest = judged.not_judged.listed
    assert first == UnjudgedRows(table="inbox", topic="ORDERS", group="group-077", rows=2)
    assert [one.group for one in rest] == [f"group-{n:03d}" for n in range(LISTED_MAX) if n != 77]
    assert (judged.not_judged.omitted_rows, judged.not_judged.rows) == (20, LISTED_MAX + 21)


def test_what_a_prefix_hands_on_is_bounded_and_loses_no_row() -> None:
    counts = {("inbox", "T", f"{number:05d}"): 1 + number % 3 for number in range(3 * KEPT_MAX)}
    first = kept(counts, KEPT_MAX)
    assert (len(first), first.total()) == (KEPT_MAX + 1, sum(counts.values()))
    assert kept(first, 10)[OMITTED] == sum(counts.values()) - 30
    assert listed(first, sources_counted=True).rows == sum(counts.values())


def test_rows_that_the_sources_have_are_added_to_those_of_the_evidence(tmp_path: Path) -> None:
    folder = with_others().write(tmp_path / "evidence")
    counted = {"table": "inbox", "topic": "ORDERS", "group": "stock", "rows": 1_000}
    write_document(folder, {**read_document(folder), "not_asked": {"listed": [counted], "omitted_rows": 7}})
    judged = judge_here(folder)
    assert told(judged)["inbox", "ORDERS", "stock"] == 1_003
    assert (judged.not_judged.omitted_rows, judged.not_judged.sources_counted) == (7, True)
    assert not judge_here(with_others().write(tmp_path / "other")).not_judged.sources_counted


@pytest.mark.parametrize(
    "wrong",
    [
        {"listed": [], "omitted_rows": -1},
        {"listed": [{"table": "inbox", "topic": "T", "group": "g"}], "omitted_rows": 0},
        {"listed": [{"table": "inbox", "topic": "T", "group": 5, "rows": 1}], "omitted_rows": 0},
        {"listed": ["inbox"], "omitted_rows": 0},
        {"omitted_rows": 0},
        [],
    ],
)
def test_a_count_of_another_shape_is_no_evidence(tmp_path: Path, wrong: object) -> None:
    folder = with_others().write(tmp_path / "evidence")
    write_document(folder, {**read_document(folder), "not_asked": wrong})
    with pytest.raises(AuditError, match=r"evidence\.json: not_asked"):
        judge_here(folder)


def test_result_report_and_statement_tell_it(tmp_path: Path) -> None:
    judged = judge_here(with_others().write(tmp_path / "evidence"))
    hostile = UnjudgedRows(table="inbox", topic="<b>", group="g", rows=2)
    not_judged = replace(judged.not_judged, listed=(*judged.not_judged.listed, hostile), omitted_rows=5)
    out = write_output(replace(judged, not_judged=not_judged), tmp_path / "out")
    result = json.loads((out / "result.json").read_text())["not_judged"]
    assert {(one["table"], one["topic"], one["group"]): one["rows"] for one in result["listed"]} == {
        **OTHERS,
        ("inbox", "<b>", "g"): 2,
    }
    assert (result["rows"], result["omitted_rows"], result["sources_counted"]) == (sum(OTHERS.values()) + 7, 5, False)
    (statement,) = (
        document
        for path in (out / "statement").glob("*.json")
        if isinstance(document := json.loads(path.read_text()), dict)
    )
    assert statement["not_judged"] == result
    page = (out / "report.html").read_text()
    assert "3 rows of <code>inbox</code> of <bdi>ORDERS/stock</bdi>" in page
    assert "2 rows of <code>inbox</code> of <bdi>&lt;b&gt;/g</bdi>" in page
    assert "5 rows of topics and groups that are not listed" in page


def test_a_result_that_was_written_before_rows_were_counted_has_statements_without_them(tmp_path: Path) -> None:
    """Else an old output, whose signature is explained field by field, would seem altered in this one."""
    out = write_output(judge_here(with_others().write(tmp_path / "evidence")), tmp_path / "out")
    result = json.loads((out / "result.json").read_text())
    for is_counted in (True, False):
        older = result if is_counted else {name: value for name, value in result.items() if name != "not_judged"}
        statement = statement_document(older, older["subscriptions"][0], outputs=[], previous=None, signed_by=None)
        assert ("not_judged" in statement) == is_counted
