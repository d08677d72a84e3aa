"""No command, no snippet and no output of a tutorial or a how-to page stands there untried."""

from __future__ import annotations

import tomllib

import pytest

from tests.acceptance.page_cases import CASES
from tests.page_blocks import DOCS, PAGES, Purpose, blocks_of, complaints
from tests.pages import merged, not_printed


@pytest.mark.parametrize("page", PAGES)
def test_no_block_of_a_page_stays_untried(page: str) -> None:
    assert not complaints(page, (DOCS / page).read_text(encoding="utf-8"))


#: Pages with a test file of their own.
ELSEWHERE = dict.fromkeys(
    ["how-to/try-an-alert.md", "how-to/try-with-compose.md"], "tests/compose/test_try_with_compose.py"
)
#: Pages that are followed within another one's run.
WITHIN = {"how-to/django.md": "how-to/try-a-service.md"}


def test_each_page_has_the_test_that_runs_it() -> None:
    def is_run(page: str) -> bool:
        blocks = blocks_of(page, (DOCS / page).read_text(encoding="utf-8"))
        return any(block.purpose is not Purpose.NOT_RUN for block in blocks)

    assert sorted(CASES | ELSEWHERE | WITHIN) == [page for page in PAGES if is_run(page)]
    assert all((DOCS.parent / test).is_file() for test in ELSEWHERE.values())
    assert CASES.keys() >= set(WITHIN.values())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```bash\ntrue\n```\nSo:\n```\nit says this\n```\n", ""),
        ("```\nit says this\n```\n", "no block that runs"),
        ("<!-- not run: needs a cluster -->\n```bash\nkubectl\n```\n```\nit says this\n```\n", "no block that runs"),
        ("```yaml\na: b\n```\n", "nothing runs 'yaml'"),
        ("<!-- not run: by night -->\n<!-- shows: x -->\n```bash\ntrue\n```\n", ""),
        ("<!-- not run: by night -->\n```bash\ntrue\n```\n```\nit says this\n```\n", ""),
        ("<!-- not run: needs a cluster -->\n<!-- shows: x -->\n```bash\ntrue\n```\n", "no mark 'shows'"),
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


TABLE = "┏━━━━━━━┳━━━━━━━┓\n┃ time  ┃ state ┃\n┗━━━━━━━┻━━━━━━━┛\n│ 2026-11-21T11:13:44.968Z │ {state} │\n"


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        ("one\ntwo\n", "zero\none\nand\ntwo\n", []),
        ("two\none\n", "one\ntwo\n", ["one"]),
        ("one\n...\nlast\n", "one\ntwo\nlast\n", []),
        ("the reason is ...\n", "the reason is long\n", []),
        ("at 2026-11-21T11:13:57Z, 317 keys\n", "at 2027-01-02T00:00:00Z, 12 keys\n", []),
        ("1 key\n", "2 keys\n", ["1 key"]),
        (TABLE.format(state="OPEN"), TABLE.format(state="OPEN").replace("2026", "2027"), []),
        (TABLE.format(state="OPEN"), TABLE.format(state="DONE"), ["OPEN"]),
    ],
)
def test_an_output_that_a_command_does_not_print_any_more_is_told(shown: str, printed: str, missing: list[str]) -> None:
    assert list(not_printed(shown, printed)) == missing


def test_lines_of_a_page_take_the_place_of_those_in_the_settings_and_a_list_grows() -> None:
    settings = '[repairs]\nenabled = true\n\n[redis]\nurl = "here"\n\n[[producers]]\ngroup = "a"\n'
    changed = merged(settings, '[repairs]\nenabled = false\nrate_per_second = 1.0\n\n[[producers]]\ngroup = "b"\n')
    assert tomllib.loads(changed) == {
        "repairs": {"enabled": False, "rate_per_second": 1.0},
        "redis": {"url": "here"},
        "producers": [{"group": "a"}, {"group": "b"}],
    }
