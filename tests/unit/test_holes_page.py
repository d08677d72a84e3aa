"""docs/reference/holes.md: every hole is listed there once, and every function and test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.named_code import exists

pytestmark = pytest.mark.unmeasured  # reads the text of the product

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/holes.md").read_text(encoding="utf-8")
#: What these tests do.
TESTS = (ROOT / "docs/explanation/how-it-is-tested.md").read_text(encoding="utf-8")
STATES = ("closed", "partly", "open", "not promised")
LINES = [line for line in PAGE.splitlines() if line.startswith("| **H")]


def columns(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_hole_has_one_line() -> None:
    numbers = [int(found[1]) for line in LINES if (found := re.match(r"\| \*\*H(\d+)\*\* \|", line))]
    assert sorted(numbers) == list(range(1, 59))


@pytest.mark.parametrize("line", LINES, ids=[re.sub(r"\W", "", line[:8]) for line in LINES])
def test_a_hole_is_closed_by_code_and_shown_by_tests_or_says_why_not(line: str) -> None:
    _hole, how, state, code, tests = columns(line)
    assert how
    word = next(word for word in STATES if state.startswith(word))
    if word != "closed":
        assert len(state) > len(word) + 10, "say why"
    if word in ("closed", "partly"):
        assert names(code)
        assert names(tests)
    for path, dotted in names(code):
        assert exists(path, dotted), f"{path} has no {dotted}"
    for path, dotted in names(tests):
        assert dotted.startswith("test_")
        assert exists(f"tests/{path}", dotted), f"tests/{path} has no {dotted}"


@pytest.mark.parametrize("page", [PAGE, TESTS], ids=["holes", "how it is tested"])
def test_tests_named_elsewhere_exist(page: str) -> None:
    prose = "\n".join(line for line in page.splitlines() if line not in LINES)
    assert names(prose)
    for path, dotted in names(prose):
        assert exists(f"tests/{path}", dotted), f"tests/{path} has no {dotted}"


def test_the_sums_are_right() -> None:
    states = [columns(line)[2] for line in LINES]
    closed, partly, promised = (
        sum(s.startswith(word) for s in states) for word in ("closed", "partly", "not promised")
    )
    assert f"{closed} are closed, {partly} partly, {promised} are not promised" in PAGE


def names(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+\.py)::([\w.]+)`", text)
