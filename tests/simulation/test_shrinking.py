"""A failing seed is printed with a smaller history that fails in the same way, and its command replays just that."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_path import import_path
from tests.simulation.checkers import Judgement
from tests.simulation.mutants import mutants, planted
from tests.simulation.shrinking import Variant, shrink, troubles_of
from tests.simulation.swarm import TROUBLES, Swarm, draw

FAULTS = TROUBLES[:2]


def _run_in(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": import_path(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.simulation.run", "--jobs", "1", "--classic", "0", *words]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_printed_command_replays_a_smaller_history_of_a_planted_bug() -> None:
    with planted(mutants(("forgotten_before_ledger",))[0]) as root:
        many = _run_in(root, "--histories", "4", "--seed", "1")
        assert many.returncode == 1, many.stderr
        found = re.search(r"smallest found  make simulate (.*)", many.stdout)
        assert found is not None, many.stdout
        named = dict(word.split("=", 1) for word in shlex.split(found.group(1)))
        assert set(named) == {"SEED", "HISTORIES", "TROUBLES", "MESSAGES"}
        assert int(named["MESSAGES"]) < 100
        assert len(named["TROUBLES"].split(",")) < 10
        replayed = _run_in(root, *(word for name, value in named.items() for word in (f"--{name.lower()}", value)))
    assert replayed.returncode == 1, replayed.stderr
    assert "unaccounted:" in replayed.stdout
    assert "smallest" not in replayed.stdout


def _seed_that_draws(*wanted: str) -> int:
    return next(seed for seed in range(1_000) if set(wanted) <= set(draw(seed).troubles))


def test_only_what_the_failure_needs_is_left() -> None:
    def run(swarm: Swarm) -> Judgement:
        judgement = Judgement(seed=swarm.seed)
        if set(FAULTS) <= set(swarm.troubles) and swarm.messages >= 10:
            judgement.lost.append("a message")
        elif swarm.troubles:
            judgement.double.append("another failure, which is not what is looked for")
        return judgement

    smallest = shrink(Variant(seed=_seed_that_draws(*FAULTS)), run=run)
    assert smallest is not None
    assert smallest.troubles == FAULTS
    assert smallest.messages is not None
    assert 10 <= smallest.messages < 20


def test_the_search_ends_where_everything_fails_and_where_nothing_does() -> None:
    runs: list[Swarm] = []

    def fails(swarm: Swarm) -> Judgement:
        runs.append(swarm)
        return Judgement(seed=swarm.seed, lost=["a message"])

    assert shrink(Variant(seed=3), run=fails, runs_max=4) is not None
    assert len(runs) == 1 + 4
    assert shrink(Variant(seed=3), run=lambda swarm: Judgement(seed=swarm.seed)) is None


def test_a_variant_keeps_the_strengths_that_its_seed_draws() -> None:
    seed = _seed_that_draws(*FAULTS)
    swarm = Variant(seed=seed, troubles=FAULTS[:1], messages=7).swarm()
    assert swarm.troubles == {FAULTS[0]: draw(seed).of(FAULTS[0])}
    assert swarm.messages == 7
    assert Variant(seed=seed, troubles=()).command == f"make simulate SEED={seed} HISTORIES=1 TROUBLES='none'"
    assert Variant(seed=seed).swarm() == draw(seed)


def test_a_trouble_that_does_not_exist_is_refused() -> None:
    assert troubles_of(None) is None
    assert troubles_of("none") == ()
    assert troubles_of(",".join(FAULTS)) == FAULTS
    with pytest.raises(ValueError, match="no such trouble: earthquake"):
        troubles_of("earthquake")
