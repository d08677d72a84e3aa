"""A how-to page answers one errand, and is read while the errand waits."""

from __future__ import annotations

import re

import pytest

from tests.page_blocks import DOCS

WORDS_MAX = 900
#: Longer pages, and why nobody reads one of them from its beginning to its end.
LOOKED_UP = {
    "troubleshooting": "its reader comes with a text of the program, searches the one page, and reads one row",
    "audit-on-a-platform": "its parts are taken by need: windows, then lake tables, then Spark Connect",
}
_NOT_READ = re.compile(r"<!--.*?-->|^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
NAMES = sorted({page.stem for page in DOCS.glob("how-to/*.md")} - LOOKED_UP.keys())


def words(text: str) -> int:
    """Of prose, tables and headings, without code."""
    return len(_NOT_READ.sub("", text).split())


@pytest.mark.parametrize("name", NAMES)
def test_a_how_to_page_is_read_in_five_minutes(name: str) -> None:
    assert words((DOCS / f"how-to/{name}.md").read_text(encoding="utf-8")) <= WORDS_MAX


def test_code_and_remarks_for_tests_are_not_counted() -> None:
    text = "# Two words\n<!-- not run: three more words -->\n```bash\nreconciler status\n```\nAnd three more.\n"
    assert words(text) == 6


def test_a_page_that_is_let_off_is_there() -> None:
    assert all((DOCS / f"how-to/{name}.md").is_file() for name in LOOKED_UP)
