"""Kinds of fault: each is counted from the trace and has a planted bug that is met under it only."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.simulation.ablation import Outcome, pairs
from tests.simulation.faults import FAULTS, FIRED_MIN, HISTORIES, fired, too_rare
from tests.simulation.mutants import mutants

PAGE = Path(__file__).parents[2] / "docs/explanation/simulation.md"


def test_every_fault_has_a_planted_bug_that_needs_it() -> None:
    shown = {fault for fault, _ in pairs(mutants())}
    assert len(FAULTS) >= 40
    assert shown == set(FAULTS)


def test_the_page_names_every_fault_with_its_planted_bugs() -> None:
    needed: dict[str, list[str]] = {}
    for fault, mutant in pairs(mutants()):
        needed.setdefault(fault, []).append(f"`{mutant.name}`")
    lines = PAGE.read_text().splitlines()
    for fault in FAULTS:
        row = [line for line in lines if line.startswith(f"| {fault} |")]
        assert len(row) == 1, fault
        assert row[0].endswith(f"| {', '.join(needed[fault])} |"), fault


def test_no_accident_counts_for_two_faults() -> None:
    named = Counter(kind for kinds in FAULTS.values() for kind in kinds)
    assert {kind for kind, number in named.items() if number > 1} == set()


def test_a_fault_that_hardly_ever_fires_is_told() -> None:
    enough = {kinds[0]: FIRED_MIN for kinds in FAULTS.values()}
    assert too_rare(enough, histories=HISTORIES) == {}
    assert too_rare({**enough, "END lost": 99}, histories=HISTORIES) == {"end lost": 99}
    assert too_rare({**enough, "END lost": 50}, histories=HISTORIES // 2) == {}
    assert too_rare({**enough, "END lost": 49}, histories=HISTORIES // 2) == {"end lost": 49}
    assert fired({"END lost": 2, "END delayed": 3})["end lost"] == 5


def test_an_accident_that_the_product_has_without_the_bug_says_nothing_of_what_the_bug_needs() -> None:
    (bug,) = mutants(["an_away_outbox_takes_nothing"])
    caught = Outcome(
        mutant=bug,
        caught_at=1,
        how="seed 1: lost",
        without={"filtered": (3, "seed 3: untold")},
        how_sound={"filtered": "untold"},
    )
    assert caught.problems == [f"{bug.name}: the product without it fails, too, 'filtered' being off: untold"]
    assert replace(caught, how_sound={}).problems == [
        f"{bug.name} needs no 'filtered': caught without it after 3 histories: seed 3: untold"
    ]
