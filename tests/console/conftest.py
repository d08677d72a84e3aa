"""One browser for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.console.watched_page import launched
from tests.services.requirements import browser_missing, require


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The distribution's browser."""
    require(browser_missing())
    with sync_playwright() as playwright:
        browser = launched(playwright)
        yield browser
        browser.close()
