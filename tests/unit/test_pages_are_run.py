"""No command, no snippet and no output of a tutorial or a how-to page stands there untried."""

from __future__ import annotations

import pytest

from tests.acceptance.page_cases import CASES
from tests.page_blocks import DOCS, PAGES, Purpose, blocks_of, complaints


@pytest.mark.parametrize("page", PAGES)
def test_no_block_of_a_page_stays_untried(page: str) -> None:
    assert not complaints(page, (DOCS / page).read_text(encoding="utf-8"))


#: Pages with a test file of their own.
ELSEWHERE = {"how-to/try-with-compose.md": "tests/compose/test_try_with_compose.py"}


def test_each_page_has_the_test_that_runs_it() -> None:
    def is_run(page: str) -> bool:
        blocks = blocks_of(page, (DOCS / page).read_text(encoding="utf-8"))
        return any(block.purpose is not Purpose.NOT_RUN for block in blocks)

    assert sorted(CASES | ELSEWHERE) == [page for page in PAGES if is_run(page)]
    assert all((DOCS.parent / test).is_file() for test in ELSEWHERE.values())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```bash\ntrue\n```\nSo:\n```\nit says this\n```\n", ""),
        ("```\nit says this\n```\n", "no block that runs"),
        ("<!-- not run: needs a cluster -->\n```bash\nkubectl\n```\n```\nit says this\n```\n", "no block that runs"),
        ("```yaml\na: b\n```\n", "nothing runs 'yaml'"),
        ("<!-- not run -->\n```bash\ntrue\n```\n", "say why"),
        ("<!-- nor run: needs a cluster -->\n```bash\ntrue\n```\n", "no mark 'nor run'"),
        ("<!-- soon: x -->\n```bash\nreconciler status\n```\n", "needs one `sleep"),
        ("<!-- exit: some -->\n```bash\nfalse\n```\n", "needs a number"),
        ("```sql\nSELECT 1;\n```\n", "has to name a database"),
        ("```bash\ntrue\n", "not closed"),
        ("1. first\n   ```bash\n   true\n   ```\n", ""),
    ],
)
def test_a_block_that_no_test_would_look_at_is_told(text: str, complaint: str) -> None:
    found = complaints("page.md", text)
    assert len(found) == bool(complaint)
    assert all(complaint in why for why in found)


def test_marks_of_several_lines_belong_to_the_block_behind_them() -> None:
    (block,) = blocks_of("page.md", "Text.\n<!-- exit: 1 -->\n<!-- shows: lost -->\n```bash\nreconciler status\n```\n")
    assert (block.marks, block.line, block.text) == ({"exit": "1", "shows": "lost"}, 4, "reconciler status\n")
