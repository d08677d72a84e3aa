"""Errands of the person on call, in a browser, over real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.console.watched_service import WatchedService

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.unmeasured,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("browser"),
]


def test_a_loss_is_told_on_the_first_page_and_found_by_its_business_id(tmp_path: Path, chromium: Browser) -> None:
    with WatchedService(tmp_path) as service:
        (business_id,) = service.lose(1)
        with service.logged_in(chromium, "olga") as watched:
            page = watched.page
            expect(page.get_by_role("main")).to_contain_text("lost")
            page.get_by_role("searchbox").fill(business_id)
            page.get_by_role("search").get_by_role("button").click()
            expect(page.get_by_role("heading", level=1)).to_contain_text(business_id)
            expect(page.get_by_role("main")).to_contain_text("END_TRANSACTION")
            page.get_by_role("article").get_by_role("link").first.click()
            expect(page.get_by_role("button", name="Dry run")).to_be_enabled()
            assert not watched.troubles
