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


HOW_TO = sorted((ROOT / "docs/how-to").glob("*.md"))


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.name)
def test_the_files_of_the_examples_stand_on_a_page_as_they_are(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == GENERATE["with_files"](text), "run: make docs"
    files = [name for name in re.findall(r"<!-- (docs/examples/\S+) -->", text) if (ROOT / name).is_file()]
    assert text.count("<!-- docs/examples/") == len(files) == text.count("<!-- /docs/examples/")


@pytest.mark.parametrize("name", sorted(GENERATE["TABLES_OF_EXAMPLES"]))
def test_the_migration_of_an_example_makes_the_tables_of_this_release(name: str) -> None:
    wanted = GENERATE["tables_of_plug_ins"](GENERATE["TABLES_OF_EXAMPLES"][name])
    assert (ROOT / "docs/examples" / name).read_text() == wanted, "run: make docs"


def test_the_tutorial_shows_the_tables_of_this_release() -> None:
    shown = re.findall(r"revision (\d{4}_\w+)", (ROOT / "docs/tutorial/first-loss.md").read_text())
    assert shown == [schema.head("ledger"), schema.head("outbox")], "its output of doctor is an older release's"
