"""The kernel against a judge that goes key by key over plain rows, on random evidence with every accident in it."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.audit.engines.job import judge_here
from reconciler.audit.output.tables import findings_parquet
from reconciler.audit.result.classes import LISTED, NAMES
from reconciler.audit.result.values import JudgedWindow
from reconciler.contract.unique_key import key_of
from tests.audit.random_evidence import random_evidence
from tests.audit.reference_judge import Judgement, judged
from tests.audit.small_evidence import SmallEvidence, of_all_prefixes
from tests.examples import examples

SEEDS = st.integers(0, 2**32)
#: Keys of an example: many, so that rare facts meet; few, so that hypothesis can make a failing one small.
SIZES = st.one_of(st.integers(100, 200), st.integers(1, 20))
pytestmark = [pytest.mark.timeout(600)]
RANDOM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_same(found: JudgedWindow, expected: Judgement) -> None:
    for one in found.subscriptions:
        of = expected[one.subscription.topic, one.subscription.group]
        assert one.classes == {**dict.fromkeys(NAMES, 0), **Counter(of.values())}
        assert sum(n for hour in one.volume for n in hour.classes.values()) == len(of)
    listed = {
        (topic, group, key_of(key), name)
        for (topic, group), of in expected.items()
        for key, name in of.items()
        if name in LISTED
    }
    named = [(f.topic, f.group, f.key, f.class_name) for f in found.findings]
    assert named == sorted(listed)


def found_in(evidence: SmallEvidence, *, rows_at_once_max: int = 10**6, **how: int | bool) -> JudgedWindow:
    with tempfile.TemporaryDirectory() as folder:
        evidence.write(Path(folder), seed=int(how.get("seed", 0)), parts=int(how.get("parts", 1)), twice="twice" in how)
        if "all_prefixes" in how:
            of_all_prefixes(Path(folder))
        return judge_here(folder, rows_at_once_max=rows_at_once_max)


@pytest.mark.promise("U1")
@settings(RANDOM, max_examples=examples(25))
@given(SEEDS, SIZES, st.integers(1, 3))
def test_kernel_says_what_the_reference_says(seed: int, keys: int, parts: int) -> None:
    evidence = random_evidence(seed, keys)
    assert_same(found_in(evidence, seed=seed, parts=parts), judged(evidence))


@settings(RANDOM, max_examples=examples(5))
@given(SEEDS, SIZES)
def test_kernel_says_of_halves_what_the_reference_says(seed: int, keys: int) -> None:
    evidence = random_evidence(seed, keys)
    evidence.rows["outbox"].clear()
    for one in evidence.subscriptions:
        one |= {"of_halves": True, "producer_groups": ["stock"]}
    assert_same(found_in(evidence, seed=seed), judged(evidence))


@settings(RANDOM, max_examples=examples(3))
@given(SEEDS, SIZES)
def test_order_doubled_files_layouts_and_slices_change_no_byte_of_the_answer(seed: int, keys: int) -> None:
    evidence = random_evidence(seed, keys)
    one = found_in(evidence)
    for other in (
        found_in(evidence, seed=seed + 1, parts=2),
        found_in(evidence, seed=seed + 2, twice=True),
        found_in(evidence, seed=seed + 3, parts=2, rows_at_once_max=20),
        found_in(evidence, seed=seed + 4, all_prefixes=True),
        found_in(evidence, seed=seed + 5, parts=2, all_prefixes=True, rows_at_once_max=20),
    ):
        assert findings_parquet(one) == findings_parquet(other)
        assert repr((one.subscriptions, one.findings, one.not_checked)) == repr(
            (other.subscriptions, other.findings, other.not_checked)
        )


def test_random_evidence_holds_every_class() -> None:
    """Without this a generator that has become too tame would let every comparison pass."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        for of in judged(random_evidence(seed)).values():
            seen.update(of.values())
    assert {name: seen[name] for name in NAMES if seen[name] < 5} == {}
