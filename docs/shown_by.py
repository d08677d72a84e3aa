"""Tests name what they show by a mark: `promise` for one of the [promises](../explanation/guarantees.md), `set_up` for a
row of the [set-ups](set-ups.md). This page lists them. The tests lie in `tests/`; `pytest -m promise` runs those of the
promises.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def shown(mark: str) -> Mapping[str, tuple[str, ...]]:
    """What tests say that they show, each with their ids below `tests`, sorted."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"mark.{mark}(" not in text:
            continue
        for test in ast.walk(ast.parse(text)):
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
                for name in _named(test, mark):
                    found.setdefault(name, []).append(f"{path.relative_to(ROOT / 'tests')}::{test.name}")
    return {name: tuple(sorted(ids)) for name, ids in found.items()}


def _named(test: ast.FunctionDef | ast.AsyncFunctionDef, mark: str) -> Iterator[str]:
    for one in test.decorator_list:
        if isinstance(one, ast.Call) and ast.unparse(one.func) == f"pytest.mark.{mark}":
            yield from (ast.literal_eval(name) for name in one.args)


@cache
def promises() -> Mapping[str, str]:
    """Every promise of the page by its id, with its words."""
    page = (ROOT / "docs/explanation/guarantees.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| \*\*(\w+)\*\* (.+?) \| ", page, re.MULTILINE))


@cache
def set_ups() -> Mapping[str, str]:
    """Every set-up of the page, with what the page says of whether it was tried."""
    page = (ROOT / "docs/reference/set-ups.md").read_text(encoding="utf-8")
    table = page.partition("# Set-ups\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {row[0].replace("`", ""): row[3] for row in rows[1:]}


def lines() -> Iterator[str]:
    """Below the title: the promises, then the set-ups, in the order of their pages."""
    yield "## Promises"
    for name, words in promises().items():
        yield from ("", f"**{name}** {words}", "", *_listed(shown("promise").get(name, ())))
    yield from ("", "## Set-ups")
    for name in set_ups():
        if tests := shown("set_up").get(name):
            yield from ("", f"**{name}**", "", *_listed(tests))


def _listed(tests: tuple[str, ...]) -> Iterator[str]:
    yield from (f"- `{test}`" for test in tests)
