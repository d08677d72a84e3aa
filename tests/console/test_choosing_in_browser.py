"""Losses are chosen in a real browser: boxes outside their form, with and without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, expect

from reconciler.clock import SystemClock
from reconciler.settings.file import load_settings
from reconciler.web.roles import WebRole
from reconciler.web.server import serving_web
from tests.console.watched_page import Look, opened, sign_in
from tests.services.ports import free_port
from tests.unit.web.ledger_of_cases import make_ledger
from tests.unit.web.web_world import PASSWORD, with_user

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("losses")
    with_user(folder / "users.json", "olga", WebRole.OPERATOR)
    variables = {
        "RECONCILER_LEDGER__URL": make_ledger(folder),
        "RECONCILER_WEB__USERS_FILE": str(folder / "users.json"),
    }
    settings = load_settings(ROOT / "config" / "reconciler.toml", variables)
    with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()) as (host, port):
        yield f"http://{host}:{port}"


@pytest.mark.parametrize(("scripts", "width"), [(True, 360), (False, 1280)], ids=["scripts", "no scripts"])
def test_a_preview_gets_other_messages_than_were_chosen(chromium: Browser, url: str, scripts: bool, width: int) -> None:
    with opened(chromium, url, look=Look(width=width), scripts=scripts) as watched:
        page = watched.page
        page.goto(f"{url}/login?next=/losses")
        sign_in(page, "olga", PASSWORD)
        cut = page.locator(".scroll").evaluate("one => one.scrollWidth - one.clientWidth")
        assert cut == 0, "the last column is out of sight"
        boxes, whole = page.locator("td.box input"), page.locator("#choose-all")
        preview = page.get_by_role("button", name="Preview repair", exact=True)
        wanted = [str(boxes.nth(place).input_value()) for place in (0, 2)]
        if scripts:
            assert watched.violations() == []
            expect(preview).to_be_disabled()
            whole.check()
            expect(page.locator("#chosen")).to_have_text(str(boxes.count()))
            whole.uncheck()
        else:
            expect(whole).to_be_hidden()
        for place in (0, 1, 2, 1):
            boxes.nth(place).press("Space")
        if scripts:
            expect(page.locator("#chosen")).to_have_text("2")
            assert whole.evaluate("one => one.indeterminate")
        with page.expect_request(f"{url}/repairs") as sent:
            preview.click()
        form = parse_qs(sent.value.post_data or "")
        assert (form["keys"], form["dry_run"]) == (wanted, ["true"])
