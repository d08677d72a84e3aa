"""A report that a signature vouches for, and that is hostile nevertheless, in a real browser."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.console.served import served
from tests.console.watched_page import opened
from tests.unit.web.audit_cases import check, known_shelf, statement
from tests.unit.web.console_world import settings_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
HOSTILE = """<!doctype html><title>A report</title><style>h1 { color: rgb(1, 2, 3) }</style><h1>Report</h1>
<meta http-equiv="refresh" content="0;url=/">
<script>document.title = "ran"; parent.location = "/"</script>
<img src="x" onerror="document.title = 'ran'"><img src="https://evil.example/seen">
<form action="/logout" method="post"><button>Go on</button></form>
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("audits")
    shelf = known_shelf(folder, {"day": check(statement(report_sha256=hashlib.sha256(HOSTILE.encode()).hexdigest()))})
    Path(shelf.folder, "day", "report.html").write_text(HOSTILE)
    with served(settings_of(folder), audits=shelf) as url:
        yield url


def test_a_report_does_something_in_the_name_of_its_reader(chromium: Browser, url: str) -> None:
    with opened(chromium, url) as watched:
        page = watched.page
        page.goto(f"{url}/audits/day/report", wait_until="networkidle")
        assert page.title() == "A report"
        assert page.locator("h1").evaluate("one => getComputedStyle(one).color") == "rgb(1, 2, 3)"
        page.get_by_role("button").click()
        assert page.url == f"{url}/audits/day/report"
        assert not [one for one in watched.troubles if not one.startswith("console: ")]
