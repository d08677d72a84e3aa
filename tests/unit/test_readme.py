"""The README shows code that tests run, and nothing else."""

import re
from pathlib import Path

import pytest

from docs.generate import readme
from reconciler.demo.run import MEANINGS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_its_code_is_the_one_that_tests_run_and_it_is_read_in_three_minutes() -> None:
    assert README.count("<!-- docs/examples/") == 2
    assert readme(README) == README, "run: make docs"
    assert len(README.split()) <= 1_200


def block(name: str) -> str:
    return README.split(f"<!-- {name} -->\n", 1)[1].split(f"<!-- /{name} -->", 1)[0]


def test_lines_of_the_demo_are_those_that_it_prints() -> None:
    shown = re.findall(r"^│ (.+?) +│ \d+ +│ (.+?) +│$", block("demo"), re.MULTILINE)
    assert len(shown) == 4
    assert all(MEANINGS[name.replace(" ", "_")] == meaning for name, meaning in shown)


def test_costs_are_those_of_the_pages_that_measure_them() -> None:
    page = "\n".join((ROOT / f"docs/{name}.md").read_text() for name in ("explanation/costs", "reference/capacity"))
    figures = re.findall(r"\d[\d ]*\d(?:\.\d+)?|\d(?:\.\d+)?", block("costs"))
    assert len(figures) > 15
    assert not [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]\d)", page)]


@pytest.mark.parametrize("tree", ["docs", "docs/zh"])
def test_every_page_stands_in_the_index_of_its_language(tree: str) -> None:
    index = ROOT / tree / "index.md"
    found = {p.relative_to(ROOT / tree).as_posix() for p in (ROOT / tree).rglob("*.md")} - {"index.md"}
    pages = sorted(page for page in found if not page.startswith("zh/"))
    assert not [page for page in pages if f"]({page})" not in index.read_text()]


def test_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\$ make ([a-z-]+)", README)) <= targets
