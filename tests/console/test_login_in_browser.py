"""A login in a real browser, whose word about where a form was sent from is taken: Origin, Sec-Fetch-Site, SameSite."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Request, Route, expect

from reconciler.clock import SystemClock
from reconciler.settings.file import load_settings
from reconciler.web.roles import WebRole
from reconciler.web.server import serving_web
from tests.console.watched_page import opened, sign_in
from tests.services.ports import free_port
from tests.unit.web.web_world import PASSWORD, with_user

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
ROOT = Path(__file__).parents[2]
EVIL = "http://evil.example/"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("users")
    with_user(folder / "users.json", "alice", WebRole.OPERATOR)
    variables = {
        "RECONCILER_LEDGER__URL": f"sqlite:///{folder}/none.db",
        "RECONCILER_WEB__USERS_FILE": str(folder / "users.json"),
        "RECONCILER_WEB__URL_PREFIX": "/reconciler",
    }
    settings = load_settings(ROOT / "config" / "reconciler.toml", variables)
    with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()) as (host, port):
        yield f"http://{host}:{port}/reconciler"


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_person_comes_in_and_goes_out(chromium: Browser, url: str, scripts: bool) -> None:
    with opened(chromium, url, scripts=scripts) as watched:
        page = watched.page
        sent: list[Request] = []
        page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
        page.goto(f"{url}/?hours=6")
        expect(page).to_have_url(f"{url}/login?next=%2F%3Fhours%3D6")
        if scripts:
            assert watched.violations() == []
        sign_in(page, "alice", "a wrong password")
        expect(page.get_by_role("alert")).to_have_text("Name or password is wrong.")
        sign_in(page, "alice", PASSWORD)
        # What is asked for stands behind the login: that no ledger answers.
        expect(page).to_have_url(f"{url}/?hours=6")
        expect(page.locator(".who")).to_contain_text("alice")
        cookies = page.context.cookies()
        assert len(cookies) == 2, "of the session and of the device"
        for cookie in cookies:
            assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/reconciler")
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url(f"{url}/login")
        page.goto(f"{url}/")
        assert "/login" in page.url
        # Browsers without Sec-Fetch-Site are known by Origin, which a stricter Referrer-Policy would make "null".
        origins = {request.all_headers()["origin"] for request in sent}
        assert origins == {url.removesuffix("/reconciler")}


def test_a_page_of_another_site_neither_logs_out_nor_in(chromium: Browser, url: str) -> None:
    with opened(chromium, url) as watched:
        page = watched.page
        page.goto(f"{url}/login")
        sign_in(page, "alice", PASSWORD)
        expect(page.locator(".who")).to_contain_text("alice")
        for path in ("logout", "login"):
            form = f"<form method=post action='{url}/{path}'><input name=name value=mallory></form>"
            body = f"{form}<script>document.forms[0].submit()</script>"
            page.unroute(EVIL)
            page.route(EVIL, partial(_answer, body))
            page.goto(EVIL, wait_until="commit")
            expect(page).to_have_url(f"{url}/{path}")
            expect(page.get_by_role("heading")).to_have_text("Not sent by a page of this server")
            page.goto(f"{url}/")
            expect(page.locator(".who")).to_contain_text("alice")


def _answer(body: str, route: Route) -> None:
    route.fulfill(body=body, content_type="text/html")
