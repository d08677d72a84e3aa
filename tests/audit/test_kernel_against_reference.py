"""The kernel against a judge that goes key by key over plain rows, on random evidence with every accident in it."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.audit.classes import LISTED, NAMES
from reconciler.audit.job import judge_here
from reconciler.audit.result import JudgedWindow
from tests.audit.reference_judge import Judgement, judged
from tests.audit.small_evidence import (
    AS_OF_MS,
    END_MS,
    GRACE_MS,
    LATE_MS,
    SKEW_MS,
    START_MS,
    Row,
    SmallEvidence,
    subscription,
)
from tests.examples import examples

TOPICS, GROUPS = ("ORDERS", "RETURNS"), ("billing", "mail")
#: Times around every edge that a rule or the window has.
COMMITS = [START_MS - 1, START_MS, START_MS + 1000, END_MS - 1, END_MS]
TIMES = [
    *COMMITS,
    START_MS + 1000 + LATE_MS,
    START_MS + 1001 + LATE_MS,
    START_MS + 1000 + LATE_MS + SKEW_MS,
    START_MS + 1001 + LATE_MS + SKEW_MS,
    AS_OF_MS - 1000,
    AS_OF_MS,
]
DIGESTS = [None, b"\x00" * 32, b"\x00" * 31 + b"\x01", b"\xff" * 32]

keys = st.one_of(*(st.binary(min_size=length, max_size=length) for length in (16, 17, 28, 32)))
topics, groups = st.sampled_from(TOPICS), st.sampled_from(GROUPS)
times, commits = st.sampled_from(TIMES), st.sampled_from(COMMITS)
digests, tags = st.sampled_from(DIGESTS), st.sampled_from([None, "", "paid", "audit"])
maybe_time = st.one_of(st.none(), times)


def of_group(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({"topic": topics, "consumer_group": groups, **columns})


def of_round(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return of_group(
        shard=st.integers(0, 1), epoch=st.sampled_from(["e1", "e2"]), generation=st.integers(1, 3), **columns
    )


TABLES: dict[str, st.SearchStrategy[Row]] = {
    "outbox": st.fixed_dictionaries(
        {
            "topic": topics,
            "producer_group": st.sampled_from(["shop", "other"]),
            "tag": tags,
            "state": st.sampled_from(["NEW", "ANNOUNCED", "SETTLED", "ROLLED_BACK"]),
            "created_at_ms": commits,
            "content_digest": digests,
        }
    ),
    "inbox": of_group(applied_at_ms=times, content_digest=digests, source=st.sampled_from(["consumer", "hand-over"])),
    "effects": of_group(effects=st.integers(0, 3)),
    "candidate": of_group(
        state=st.sampled_from(["OPEN", "SETTLED", "QUARANTINED"]), first_seen_ms=times, updated_at_ms=times
    ),
    "repair": st.fixed_dictionaries(
        {
            "topic": topics,
            "scope": st.sampled_from(["*", *GROUPS]),
            "attempts": st.integers(0, 2),
            "created_at_ms": times,
            "sent_at_ms": maybe_time,
            "first_sent_at_ms": maybe_time,
        }
    ),
    "announced": of_round(at_ms=times),
    "consumed": of_round(at_ms=times),
    "left": of_group(at_ms=times, reason=st.sampled_from(["MATCHED", "SETTLED", "QUARANTINED"])),
    "pending": of_group(at_ms=times, shard=st.integers(0, 1)),
}
SNAPSHOTS = st.lists(of_round(at_ms=times), max_size=6)


@st.composite
def evidences(draw: st.DrawFn) -> SmallEvidence:
    asked = [
        subscription(
            topic,
            group,
            tags=draw(st.sampled_from([None, ["paid"], ["audit", "paid"]])),
            grace_period_seconds=draw(st.sampled_from([0.0, GRACE_MS / 1000, (AS_OF_MS - START_MS - 1000) / 1000])),
            producer_groups=draw(st.sampled_from([["shop"], ["other", "shop"]])),
            effects=draw(st.booleans()),
        )
        for topic in TOPICS
        for group in GROUPS
        if (topic, group) == (TOPICS[0], GROUPS[0]) or draw(st.booleans())
    ]
    evidence = SmallEvidence(subscriptions=asked, shards=2, ledger=draw(st.booleans()))
    pool = draw(st.lists(keys, min_size=1, max_size=5, unique=True))
    for table, rows in TABLES.items():
        # Few keys and many tables: most keys meet several facts, and rows repeat and contradict each other.
        for key, row in draw(st.lists(st.tuples(st.sampled_from(pool), rows), max_size=7)):
            evidence.add(table, key, **row)
    for row in draw(SNAPSHOTS):
        evidence.add("snapshot", **row)
    return evidence


def assert_same(found: JudgedWindow, expected: Judgement) -> None:
    for one in found.subscriptions:
        of = expected[one.subscription.topic, one.subscription.group]
        assert one.classes == {**dict.fromkeys(NAMES, 0), **Counter(of.values())}
        assert sum(n for hour in one.volume for n in hour.classes.values()) == len(of)
    listed = {
        (topic, group, key.hex().upper(), name)
        for (topic, group), of in expected.items()
        for key, name in of.items()
        if name in LISTED
    }
    named = [(f.topic, f.group, f.key, f.class_name) for f in found.findings]
    assert named == sorted(listed)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(evidences(), st.integers(0, 2**32), st.integers(1, 3), st.booleans())
def test_kernel_says_what_the_reference_says_in_any_order_of_rows_and_files(
    evidence: SmallEvidence, seed: int, parts: int, twice: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = judge_here(evidence.write(Path(folder), seed=seed, parts=parts, twice=twice))
    assert_same(found, judged(evidence))


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(evidences(), st.integers(0, 2**32))
def test_slices_of_keys_and_doubled_files_give_the_same_answer(evidence: SmallEvidence, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = judge_here(evidence.write(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        other = judge_here(evidence.write(Path(folder), seed=seed, parts=2, twice=True), rows_at_once_max=3)
    assert (one.subscriptions, one.findings, one.not_checked) == (
        other.subscriptions,
        other.findings,
        other.not_checked,
    )
