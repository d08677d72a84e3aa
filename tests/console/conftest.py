"""One browser for the tests of a module.

Playwright keeps an event loop in the thread of the tests while it runs, and tests of other modules run their own:
the fixture ends with the module, not with the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.console.watched_page import launched
from tests.services.requirements import browser_missing, require


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The distribution's browser."""
    require(browser_missing())
    with sync_playwright() as playwright:
        browser = launched(playwright)
        yield browser
        browser.close()
    assert asyncio._get_running_loop() is None
