"""Reference pages are written from the code; a page that lags behind would mislead somebody at 3 a.m."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATE = runpy.run_path(str(ROOT / "docs/generate.py"))


@pytest.mark.parametrize("name", sorted(GENERATE["PAGES"]))
def test_reference_page_is_what_the_code_says(name: str) -> None:
    assert (ROOT / "docs/reference" / name).read_text() == GENERATE["PAGES"][name](), "run: make docs"
