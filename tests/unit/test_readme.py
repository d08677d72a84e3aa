"""The README shows code that tests run, and nothing else."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.demo.run import MEANINGS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", ["docs/examples/order_service.py", "docs/examples/billing_service.py"])
def test_code_in_the_readme_is_the_file_that_tests_run(name: str) -> None:
    found = re.search(
        rf"<!-- {re.escape(name)} -->\n```python\n(.*?)```\n<!-- /{re.escape(name)} -->", README, re.DOTALL
    )
    assert found is not None
    assert found[1] == (ROOT / name).read_text(), "run: make docs"


def block(name: str) -> str:
    return README.split(f"<!-- {name} -->\n", 1)[1].split(f"<!-- /{name} -->", 1)[0]


def test_the_query_that_tells_who_is_affected_names_the_lost_order_only() -> None:
    query = re.sub("^```(sql)?$", "", block("affected"), flags=re.MULTILINE)
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE orders (number INTEGER, created_at INTEGER)")
        database.execute("CREATE TABLE bills (number INTEGER)")
        database.executemany("INSERT INTO orders VALUES (?, ?)", [(1, 10), (2, 10), (3, 99)])
        database.execute("INSERT INTO bills VALUES (1)")
        assert database.execute(query, {"an_hour_ago": 50}).fetchall() == [(2,)]


def test_lines_of_the_demo_are_those_that_it_prints() -> None:
    shown = re.findall(r"^│ (.+?) +│ \d+ +│ (.+?) +│$", block("demo"), re.MULTILINE)
    assert len(shown) == 4
    assert all(MEANINGS[name.replace(" ", "_")] == meaning for name, meaning in shown)


def test_the_story_is_the_first_one_that_the_search_found() -> None:
    first = (ROOT / "docs/explanation/stories.md").read_text().split("\n## ")[1]
    assert block("story").strip() in first


def test_costs_are_those_of_the_page_that_measures_them() -> None:
    page = (ROOT / "docs/explanation/costs.md").read_text()
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
