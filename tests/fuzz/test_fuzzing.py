"""Hostile bytes cost an error of ours and nothing else; what once cost more is in the corpus and is run for ever.

`make fuzz EXECUTIONS=1000000 SEED=1` runs more of the same; docs/explanation/how-it-is-tested.md says what was run.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from reconciler.errors import ProtocolViolation
from tests.fuzz import runner
from tests.fuzz.targets import CORPUS, TARGETS, Target

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXECUTIONS = 20_000
CORPUS_BYTES_MAX = 256 * 1024


@pytest.fixture(autouse=True)
def deadlines() -> Iterator[None]:
    with runner.watched():
        yield


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_seed_and_no_regression_does_what_none_may_do(target: Target) -> None:
    seeds = target.seeds()
    assert seeds
    for data in seeds:
        assert runner.execute(target, data) is None, data


def test_no_mutated_input_crashes_hangs_or_fills_memory() -> None:
    outcome = runner.run(EXECUTIONS, seed=20)
    assert [f"{f.target}:{f.seed}:{f.number} {f.what}" for f in outcome.findings] == []
    assert sum(outcome.executions.values()) >= EXECUTIONS - len(TARGETS)
    for target in TARGETS:
        # Damage that is always refused at the first byte, or never, would show nothing.
        assert 0 < outcome.taken[target.name] < outcome.executions[target.name], target.name


def test_a_crash_a_hang_and_growing_memory_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(data: bytes) -> bool:
        raise ProtocolViolation("is expected by nobody here")

    def hangs(data: bytes) -> bool:
        while True:
            pass

    kept: list[bytearray] = []

    def grows(data: bytes) -> bool:
        kept.append(bytearray(b"x" * 1_000_000))
        return True

    monkeypatch.setattr(runner, "DEADLINE_SECONDS", 0.1)
    monkeypatch.setattr(runner, "GROWTH_BYTES_MAX", 100_000_000)
    monkeypatch.setattr(runner, "WARM_UP", 10)
    monkeypatch.setattr(runner, "CHECK_EVERY", 10)
    for run, count, what in ((crashes, 1, "ProtocolViolation"), (hangs, 1, "Hang"), (grows, 200, "MemoryGrew")):
        target = Target(name="bad", seeds=lambda: [b"seed"], mutate=lambda data, chance: data, run=run)
        monkeypatch.setattr(runner, "TARGETS", (target,))
        found = runner.run(count, seed=1).findings
        assert found
        assert what in found[0].what


def test_an_input_is_made_again_from_its_number() -> None:
    for target in TARGETS:
        numbers = Random(7).sample(range(100_000), 20)
        first = [runner.input_of(target, 3, number) for number in numbers]
        assert [runner.input_of(target, 3, number) for number in numbers] == first
        assert len(set(first)) > 10


def test_the_corpus_stays_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < CORPUS_BYTES_MAX
