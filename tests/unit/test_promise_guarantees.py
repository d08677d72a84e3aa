"""Promises and set-ups of the docs are those that tests say that they show."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = ("G1", "G2", "G3", "G4", "G5", "L1", "L2", "L3", "U1")
PAGE = (ROOT / "docs/explanation/guarantees.md").read_text(encoding="utf-8")
SHOWN_BY = runpy.run_path(str(ROOT / "docs/shown_by.py"))


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_is_shown_by_three_tests_or_more(promise: str) -> None:
    assert len(SHOWN_BY["shown"]("promise").get(promise, ())) >= 3


def test_no_test_shows_a_promise_that_nobody_gave() -> None:
    assert set(SHOWN_BY["shown"]("promise")) <= set(PROMISES) == set(SHOWN_BY["promises"]())


@pytest.mark.parametrize("set_up", SHOWN_BY["set_ups"]())
def test_a_set_up_that_was_tried_has_its_test_and_another_one_has_none(set_up: str) -> None:
    tried = SHOWN_BY["set_ups"]()[set_up]
    assert tried.split(";")[0].split(",")[0] in {"yes", "no"}
    assert (set_up in SHOWN_BY["shown"]("set_up")) == tried.startswith("yes") or tried == "yes, as the next row"


def test_no_test_shows_a_set_up_that_the_page_has_not() -> None:
    assert set(SHOWN_BY["shown"]("set_up")) <= set(SHOWN_BY["set_ups"]())


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_says_where_it_stops(promise: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| **{promise}**")]
    _promise, stops = row.strip("|").split(" | ")
    assert len(stops.split()) > 3


def test_promises_named_under_accidents_exist() -> None:
    _, matrix = PAGE.split("## Under which accident")
    named = set(re.findall(r"\b[GLU]\d\b", matrix))
    assert named
    assert named <= set(PROMISES)


def test_the_readme_leads_to_the_promises() -> None:
    assert "](docs/explanation/guarantees.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
