"""Who holds an order's number finds it beside the key: in findings and on the page, and never in a rule."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from reconciler.audit.engines.job import judge_here
from reconciler.audit.result.values import BUSINESS_ID, Finding
from reconciler.contract.unique_key import member_of
from tests.audit.small_evidence import START_MS, SmallEvidence, seal_again, subscription

LOST, APPLIED, NAMELESS, STRANGE = (bytes([number]) * 16 for number in range(1, 5))


def evidence_of(folder: Path) -> Path:
    """Lost with two numbers and a third in another topic; one that is well; one without a number; one of no outbox."""
    made = SmallEvidence(subscriptions=[subscription(), subscription(group="stock")])
    made.add("outbox", LOST, business_id="ORDER-2")
    made.add("outbox", LOST, business_id="ORDER-1")
    made.add("outbox", LOST, topic="OTHER", business_id="ORDER-0")
    made.story(APPLIED, business_id="ORDER-3")
    made.add("inbox", APPLIED, consumer_group="stock")
    made.add("outbox", NAMELESS)
    made.add("inbox", STRANGE, applied_at_ms=START_MS + 5)
    made.add("repair", LOST)
    return made.write(folder, parts=2)


def findings_of(folder: Path, rows_at_once_max: int = 1_000) -> dict[tuple[str, bytes], Finding]:
    judged = judge_here(folder, rows_at_once_max=rows_at_once_max)
    assert judged.messages == {"ORDERS": 4}
    return {(one.group, member_of(one.key)): one for one in judged.findings}


def test_a_finding_says_what_the_business_calls_the_message(tmp_path: Path) -> None:
    for rows_at_once_max in (1_000, 1):
        found = findings_of(evidence_of(tmp_path / str(rows_at_once_max)), rows_at_once_max)
        ids = {key: one.evidence.get(BUSINESS_ID) for (_, key), one in found.items()}
        assert ids == {LOST: "ORDER-1", NAMELESS: None, STRANGE: None}
        assert sum(key == LOST for _, key in found) == 2, "one finding a group"


def test_evidence_that_lacks_what_later_releases_added_is_judged_as_if_that_were_null(tmp_path: Path) -> None:
    folder = evidence_of(tmp_path / "evidence")
    whole = findings_of(folder)
    for table, column in (("outbox", BUSINESS_ID), ("inbox", "incomplete"), ("repair", "first_sent_at_ms")):
        for path in sorted((folder / table).rglob("*.parquet")):
            lacking = pq.ParquetFile(path).read().drop_columns([column])
            seal_again(folder, path.relative_to(folder).as_posix(), lacking)
    for rows_at_once_max in (1_000, 1):
        found = findings_of(folder, rows_at_once_max)
        assert {name: one.class_name for name, one in whole.items()} == {
            name: one.class_name for name, one in found.items()
        }
        assert not any(BUSINESS_ID in one.evidence for one in found.values())
