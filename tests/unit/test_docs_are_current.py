"""Reference pages are written from the code; a page that lags behind would mislead a person at 3 a.m."""

import re
import runpy
from pathlib import Path

import pytest

from deploy import written
from reconciler.sql import schema

ROOT = Path(__file__).parents[2]
GENERATE = runpy.run_path(str(ROOT / "docs/generate.py"))


@pytest.mark.parametrize("name", sorted(GENERATE["PAGES"]))
def test_reference_page_is_what_the_code_says(name: str) -> None:
    assert (ROOT / "docs/reference" / name).read_text() == GENERATE["PAGES"][name](), "run: make docs"


@pytest.mark.parametrize(("page", "language"), [*GENERATE["RUNBOOKS"]["pages"]()])
def test_the_written_parts_of_a_runbook_are_what_the_code_says(page: Path, language: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == GENERATE["RUNBOOKS"]["written"](text, language), "run: make docs"
    assert "<!-- prefix -->" in text


@pytest.mark.parametrize("name", sorted(written.FILES))
def test_file_of_a_package_is_what_the_code_says(name: str) -> None:
    assert (written.FOLDER / name).read_text() == written.FILES[name](), "run: make docs"


def test_the_tutorial_shows_the_tables_of_this_release() -> None:
    shown = re.findall(r"revision (\d{4}_\w+)", (ROOT / "docs/tutorial/first-loss.md").read_text())
    assert shown == [schema.head("ledger"), schema.head("outbox")], "its output of doctor is an older release's"
