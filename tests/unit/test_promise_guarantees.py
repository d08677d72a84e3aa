"""docs/explanation/guarantees.md states every promise and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = ("G1", "G2", "G3", "G4", "G5", "L1", "L2", "L3", "U1")
PAGE = (ROOT / "docs/explanation/guarantees.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_is_shown_by_tests_that_exist(promise: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| **{promise}**")]
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
    assert len(named) >= 3
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), f"{path}::{name}"


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_says_where_it_stops(promise: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| **{promise}**")]
    _promise, _shown, stops = row.strip("|").split(" | ")
    assert len(stops.split()) > 3


def test_promises_named_under_accidents_exist() -> None:
    _, matrix = PAGE.split("## Under which accident")
    named = set(re.findall(r"\b[GLU]\d\b", matrix))
    assert named
    assert named <= set(PROMISES)


def test_the_readme_leads_to_the_promises() -> None:
    assert "](docs/explanation/guarantees.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
