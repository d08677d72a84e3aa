"""The simulated world in CI: a number of histories, the same history twice, planted bugs, the original algorithm."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.ablation import try_all
from tests.simulation.checkers import Judgement
from tests.simulation.economies import in_turn, undisturbed
from tests.simulation.faults import ASKED_FOR, BY_LOT
from tests.simulation.history import run_history
from tests.simulation.mutants import Mutant, mutants, patched
from tests.simulation.run import add_up, judge_classic, judged
from tests.simulation.swarm import SET_UPS, TROUBLES, draw
from tests.simulation.watching import LOSING

ROOT = Path(__file__).parents[2]
#: So many tests of so many histories: workers share them. The first ones are CI's.
TESTS, HISTORIES, IN_CI = 20, 500, 1
#: Faults that show little where few messages are lost.
SHOWN_BY_LOSSES = SET_UPS | {"no sign of popping", "since moved", "sends by a query", "effects by a query"}


@pytest.mark.promise("G1", "G2", "G3", "G5", "L1")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "number", [*range(IN_CI), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(IN_CI, TESTS))]
)
def test_no_history_loses_doubles_invents_or_changes_a_message(number: int) -> None:
    lines: list[str] = []
    sums, seen = add_up(judged(1 + number * HISTORIES, HISTORIES, jobs=1), write=lines.append)
    assert not sums["failing_histories"], "\n".join(lines)
    assert sums["messages"] > 80 * HISTORIES
    assert sums["repairs"] > HISTORIES
    assert sums.get("unnecessary_repairs", 0) <= 1, "\n".join(lines)
    assert len(seen) >= 40


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", sorted(ASKED_FOR - BY_LOT))
def test_no_history_of_a_fault_that_is_asked_for_loses_doubles_invents_or_changes_a_message(trouble: str) -> None:
    lines: list[str] = []
    always, count = (LOSING | {trouble}, 6) if trouble in SHOWN_BY_LOSSES else (frozenset({trouble}), 16)
    with undisturbed():
        drawn = [run_history(draw(seed, always=always)) for seed in in_turn(range(1, 1 + count))]
    sums, _ = add_up(iter(drawn), write=lines.append)
    assert not sums["failing_histories"], "\n".join(lines)


@pytest.mark.slow
def test_every_trouble_is_drawn_on_and_off() -> None:
    drawn = [draw(seed) for seed in range(200)]
    for trouble in set(TROUBLES) - ASKED_FOR:
        assert 0 < sum(bool(swarm.of(trouble)) for swarm in drawn) < 200, trouble


def test_a_run_that_is_interrupted_keeps_what_was_judged() -> None:
    judgements = [run_history(draw(1, only=frozenset())), run_history(draw(2))]

    def interrupted() -> Iterator[Judgement]:
        yield from judgements
        raise KeyboardInterrupt

    sums, seen = add_up(interrupted(), write=print)
    assert (sums["histories"], sums["interrupted"]) == (2, 1)
    assert sums["messages"] == sum(judgement.messages for judgement in judgements) > 100
    assert seen


def test_a_world_without_troubles_needs_no_repair() -> None:
    judgement = run_history(draw(1, only=frozenset()))
    assert not judgement.accidents
    assert judgement.messages >= 100
    assert judgement.repairs == 0


def test_the_same_seed_is_the_same_history_whatever_the_hash_seed() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-m", "tests.simulation.run", "--histories", "1", "--seed", "7"],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True,
        ).stdout.rpartition("\n{")[0]
        for hash_seed in ("0", "1")
    }  # fmt: skip
    assert len(told) == 1


def test_every_planted_bug_still_fits_the_product() -> None:
    found = mutants()
    assert len(found) >= 40
    for mutant in found:
        assert mutant.always | set(mutant.without) <= set(TROUBLES)
        assert patched(mutant.patch, ROOT)


@pytest.mark.slow
def test_the_original_algorithm_fails_in_this_world() -> None:
    """If it does not, the world is too kind."""
    found = list(judged(1, 60, jobs=2, judge=judge_classic))
    assert sum(j.has_failed or bool(j.unnecessary) for j in found) >= 54
    assert sum(len(j.lost) for j in found) > 50
    assert sum(len(j.double) for j in found) > 50


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", [m for m in mutants() if not m.is_rarely_met], ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    (outcome,) = try_all([mutant], seed=1, jobs=1, off=0, known_first=True)
    assert outcome.problems == []


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught_and_only_under_the_faults_it_needs(mutant: Mutant) -> None:
    (outcome,) = try_all([mutant], seed=1, jobs=1)
    assert outcome.problems == []
