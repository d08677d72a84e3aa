"""Adjoining windows, each audited as soon as it is closed: every committed key is counted by exactly one answer."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reconciler.audit.engines.job import judged_by
from reconciler.audit.evidence.folder import load_evidence
from reconciler.audit.evidence.plan import JudgePlan, PlannedFile
from reconciler.audit.judge.merge import result_rows
from reconciler.audit.judge.prefix import judge_prefix
from reconciler.audit.result.values import JudgedWindow
from reconciler.contract.history_row import prefix_of
from tests.audit.small_evidence import LATE_MS, START_MS, SmallEvidence, subscription
from tests.examples import examples

WINDOW_MS = 1_800_000
WINDOWS = 3
#: What announcing takes where nothing is wrong: the sweep and the next round.
ANNOUNCING_MS = 30_000
#: A key of its own topic: counts tell which one they count.
KEY = b"k" * 16

BORDERS = [START_MS + number * WINDOW_MS for number in range(WINDOWS + 1)]
#: On, before and after every edge that a window or a rule has.
EDGES = st.sampled_from([at + off for at in BORDERS[1:] for off in (-LATE_MS, -1, 0, 1, LATE_MS - 1, LATE_MS)])
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Story:
    """One message; times are None where it did not happen."""

    written_ms: int
    committed_ms: int
    announced_ms: int | None = None
    applied_ms: int | None = None

    @property
    def is_unseen(self) -> bool:
        """No witness has seen its commit."""
        return self.announced_ms is None and self.applied_ms is None

    @property
    def is_seen_soon(self) -> bool:
        """Or by no witness at all."""
        return self.applied_ms is None or self.applied_ms - self.committed_ms <= ANNOUNCING_MS

    @property
    def is_of_these(self) -> bool:
        """Neither of a window before the first one, nor of one after the last."""
        latest_ms = self.written_ms + 2 * LATE_MS if self.is_unseen else self.committed_ms
        return self.written_ms >= BORDERS[0] and latest_ms < BORDERS[-1]

    def tell(self, evidence: SmallEvidence, topic: str) -> None:
        """What is in the evidence when it is collected: in its window, or found by key."""
        until_ms = evidence.collected_at_ms
        of = {"topic": topic}
        if self.committed_ms <= until_ms:
            evidence.add("outbox", KEY, created_at_ms=self.written_ms, **of)
        if self.announced_ms is not None and self.announced_ms <= min(until_ms, evidence.as_of_ms):
            evidence.add("announced", KEY, at_ms=self.announced_ms, **of)
        if self.applied_ms is not None and self.applied_ms <= until_ms:
            evidence.add("inbox", KEY, applied_at_ms=self.applied_ms, **of)


@st.composite
def stories(draw: st.DrawFn, longest_ms: int) -> Story:
    """Transactions that begin or end near an edge, announced soon after or not at all."""
    lasted_ms = draw(st.sampled_from([0, 1, LATE_MS - 1, LATE_MS, LATE_MS + 1, 2 * LATE_MS, longest_ms]))
    written_ms = draw(EDGES) - draw(st.sampled_from([0, lasted_ms, lasted_ms + 1000]))
    committed_ms = written_ms + lasted_ms
    announced = draw(st.one_of(st.none(), st.integers(0, ANNOUNCING_MS)))
    applied = draw(st.one_of(st.none(), st.integers(0, ANNOUNCING_MS), st.just(2 * LATE_MS)))
    if announced is None and applied is not None:
        applied = min(applied, ANNOUNCING_MS)
    return Story(
        written_ms,
        committed_ms,
        announced_ms=None if announced is None else committed_ms + announced,
        applied_ms=None if applied is None else committed_ms + applied,
    )


def judged_in(folder: Path) -> JudgedWindow:
    """The folder's one prefix that has rows."""
    evidence = load_evidence(folder, findings_a_prefix=100)
    prefix = prefix_of(KEY)
    files = {prefix: evidence.files[prefix]}

    def answers(plan: JudgePlan, of: Mapping[int, Sequence[PlannedFile]]) -> pa.Table:
        return pa.Table.from_batches([result_rows(prefix, judge_prefix(plan, prefix, of[prefix]))])

    return judged_by(replace(evidence, files=files), answers, 100)


def audited(told: Sequence[Story], number: int, *, has_history: bool, later_ms: int = 0) -> JudgedWindow:
    """The answer about a window, asked for as soon as it is closed, or later."""
    at_ms = BORDERS[number + 1] + LATE_MS + later_ms
    evidence = SmallEvidence(
        subscriptions=[subscription(f"T{place}") for place in range(len(told))],
        has_history=has_history,
        start_ms=BORDERS[number],
        end_ms=BORDERS[number + 1],
        as_of_ms=at_ms,
        collected_at_ms=at_ms,
    )
    for place, story in enumerate(told):
        story.tell(evidence, f"T{place}")
    with tempfile.TemporaryDirectory() as folder:
        judged = judged_in(evidence.write(Path(folder)))
    assert judged.no_answer is None
    return judged


def counted(told: Sequence[Story], *, has_history: bool) -> Counter[int]:
    """Story's place -> windows that count it."""
    found: Counter[int] = Counter()
    for number in range(WINDOWS):
        for one in audited(told, number, has_history=has_history).subscriptions:
            found[int(one.subscription.topic[1:])] += one.keys
    return found


RANDOM = settings(deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
TOLD = st.lists(stories(2 * LATE_MS), min_size=3, max_size=10)


@RANDOM
@given(TOLD)
@example([Story(BORDERS[1] - 1, BORDERS[1] - 1 + 2 * LATE_MS, BORDERS[1] + 2 * LATE_MS)])
@example([Story(BORDERS[1] - 1, BORDERS[1] - 1 + 2 * LATE_MS)])
def test_every_committed_key_is_counted_by_exactly_one_window(told: list[Story]) -> None:
    """One whose transaction lasted longer than late_after_seconds across a border was counted by none."""
    assert_counted_once(told, has_history=True)


@RANDOM
@given(TOLD)
def test_so_it_is_without_a_history(told: list[Story]) -> None:
    silent = [replace(story, announced_ms=None) for story in told]
    assert_counted_once([story for story in silent if story.is_seen_soon], has_history=False)


def assert_counted_once(told: Sequence[Story], *, has_history: bool) -> None:
    found = counted(told, has_history=has_history)
    for place, story in enumerate(told):
        assert found[place] <= 1, story
        assert found[place] == 1 or not story.is_of_these, story


@RANDOM
@given(st.lists(stories(5 * LATE_MS), min_size=3, max_size=10))
def test_no_commit_that_anybody_has_seen_is_counted_by_none(told: list[Story]) -> None:
    """However long its transaction lasted."""
    found = counted(told, has_history=True)
    for place, story in enumerate(told):
        assert found[place] or story.is_unseen or not story.is_of_these, story


def test_an_audit_that_is_made_again_says_the_same() -> None:
    """The older statement stays as it is, and may be checked by a later audit of its window."""
    told = [Story(BORDERS[1] - 1, BORDERS[1] - 1 + 2 * LATE_MS, BORDERS[1] + 2 * LATE_MS)]
    before, after = (audited(told, 0, has_history=True, later_ms=later_ms) for later_ms in (0, 10 * LATE_MS))
    assert before.subscriptions[0].classes == after.subscriptions[0].classes
    assert audited(told, 1, has_history=True).subscriptions[0].keys == 1
