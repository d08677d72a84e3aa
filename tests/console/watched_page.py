"""A page of a browser that is watched: dialogs, errors of scripts, and requests to other hosts are troubles.

with opened(chromium, url, look=Look(language="zh-CN", dark=True, width=360)) as watched:
    watched.page.goto(f"{url}/")
    assert not watched.troubles
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Playwright,
    Request,
    Response,
    Route,
    StorageState,
    expect,
)

from tests.services.requirements import browser

#: For pages that tell what other processes do meanwhile, on a machine that is busy with more than these tests.
EXPECTED_WITHIN_MS = 120_000.0
#: Of a telephone and of a laptop, in pixels; of a fingertip.
WIDTHS, FINGERTIP = (360, 1280), 44
#: What can be pressed or filled in; links within a sentence are as high as its line.
_CONTROLS = "input:not([type=hidden]), select, textarea, button, summary, a.button, header nav a, .who a"
#: [name as it is heard, height, whether it is a part of a form] of each.
_HEARD = f"""[...document.querySelectorAll(`{_CONTROLS}`)].filter((one) => one.checkVisibility()).map((one) => {{
  const labels = [...(one.labels || [])];
  const name = one.ariaLabel || (labels.length ? labels : [one]).map((part) => part.textContent.trim()).join(" ");
  const pressed = one.matches("[type=checkbox], [type=radio]") && labels.length ? labels[0] : one;
  return [name, pressed.getBoundingClientRect().height, one.matches("main button, main input, main select")];
}})"""
#: Boxes whose content goes on out of sight: a table is a list on a telephone, but for those of docs with many columns.
_OUT_OF_SIGHT = """[...document.querySelectorAll(".scroll")].filter((one) => one.checkVisibility()
  && !one.matches(".document :has(tr > :nth-child(3))") && one.scrollWidth > one.clientWidth)
  .map((one) => one.textContent.trim().slice(0, 40))"""
#: Words beside a box that stand on another line than the box, names in lists that run into their values, and cells of
#: two columns that have room for a word or two.
_ASTRAY = """[
  ["main label:has(input[type=checkbox])", (one) => one.getClientRects().length > 1],
  [".rows td", (one) => getComputedStyle(one, "::before").whiteSpace === "nowrap"],
  [".document table:not(.rows, :has(tr > :nth-child(3))) td:not(:empty)", (one) => one.clientWidth < 160],
].flatMap(([which, is_astray]) => [...document.querySelectorAll(which)]
  .filter((one) => one.checkVisibility() && is_astray(one)).map((one) => one.textContent.trim().slice(0, 40)))"""
#: What a browser asks of its maker's hosts when it starts is switched off.
_QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: What the console of a browser says of a status, which is told with its address instead.
_TOLD_BY_RESPONSE = "Failed to load resource: the server responded with a status of"


def launched(playwright: Playwright) -> Browser:
    """The distribution's browser, without a screen. Its pages are given EXPECTED_WITHIN_MS to become as expected."""
    expect.set_options(timeout=EXPECTED_WITHIN_MS)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=browser(), args=[*sandbox, *_QUIET])


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a browser shows a page."""

    language: str = "en"
    dark: bool = False
    #: Of the window, in pixels.
    width: int = 1280

    @property
    def theme(self) -> Literal["dark", "light"]:
        """What the visitor prefers."""
        return "dark" if self.dark else "light"

    def __str__(self) -> str:
        return f"{self.width}-{self.theme}-{self.language}"


A_DESK = Look()


@dataclass(slots=True, kw_only=True)
class WatchedPage:
    """One page, and what went wrong on it."""

    page: Page
    #: One line each; empty: nothing.
    troubles: list[str] = field(default_factory=list)

    def hold_still(self) -> None:
        """Live parts ask no more, what they have asked is there, and a page that loads again (Refresh) does not.
        Else it changes while it is looked at."""
        self.page.evaluate("document.addEventListener('htmx:beforeRequest', (asked) => asked.preventDefault())")
        expect(self.page.locator(".htmx-request, .htmx-swapping, .htmx-settling, .htmx-added")).to_have_count(0)
        self.page.evaluate("window.stop()")

    def violations(self) -> list[str]:
        """What axe-core finds: rule, how bad, and the elements."""
        found = Axe().run(self.page, options={"resultTypes": ["violations"]})
        return [
            f"{one['id']} ({one['impact']}): {one['help']}: {', '.join(str(node['target']) for node in one['nodes'])}"
            for one in found.response["violations"]
        ]

    def barriers(self) -> Iterator[str]:
        """What keeps somebody with a telephone or a laptop, by eye or by ear, from reading or pressing something."""
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            if (over := self.overflow_pixels()) > 0:
                yield f"{width}: {over} pixels too wide"
            heard: list[tuple[str, float, bool]] = self.page.evaluate(_HEARD)
            if width == min(WIDTHS):
                yield from (f"{name!r} is {high} pixels high" for name, high, _ in heard if high < FINGERTIP)
                yield from (f"{text!r} goes on out of sight" for text in self.page.evaluate(_OUT_OF_SIGHT))
                yield from (f"{text!r} is not read beside what it names" for text in self.page.evaluate(_ASTRAY))
        names = [name for name, _, is_of_form in heard if is_of_form]
        yield from (f"without a name, or alike: {name!r}" for name in {*names} if not name or names.count(name) > 1)

    def overflow_pixels(self) -> int:
        """How much wider than the window the page is, or what a card holds than the card, whichever is more."""
        cards = "[...document.querySelectorAll('.card')].map(card => card.scrollWidth - card.clientWidth)"
        page = "document.documentElement.scrollWidth - window.innerWidth"
        measured: Any = self.page.evaluate(f"Math.max({page}, ...{cards})")
        return int(measured)


def sign_in(page: Page, name: str, password: str) -> None:
    """Fills and sends the form of the login page, which is open, in any language."""
    form = page.get_by_role("main")
    form.locator("[name=name]").fill(name)
    form.locator("[name=password]").fill(password)
    form.get_by_role("button").click()


@contextmanager
def opened(
    browser: Browser,
    url: str,
    *,
    look: Look = A_DESK,
    scripts: bool = True,
    cookies: StorageState | None = None,
) -> Iterator[WatchedPage]:
    """A page; requests that do not begin with `url` are refused and told. `cookies`: what another page has left."""
    context = browser.new_context(
        locale=look.language,
        color_scheme=look.theme,
        viewport={"width": look.width, "height": 900},
        java_script_enabled=scripts,
        timezone_id="UTC",
        storage_state=cookies,
    )
    try:
        watched = WatchedPage(page=context.new_page())
        _watch(watched, url)
        yield watched
    finally:
        context.close()


def _watch(watched: WatchedPage, url: str) -> None:
    told = watched.troubles

    def on_dialog(dialog: Dialog) -> None:
        told.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(_TOLD_BY_RESPONSE):
            told.append(f"console: {message.text}")

    def on_request(route: Route, request: Request) -> None:
        if request.url.startswith((url, "data:", "blob:")):
            route.continue_()
        else:
            told.append(f"request: {request.url}")
            route.abort()

    def on_error(error: Error) -> None:
        told.append(f"script: {error.message}")

    def on_response(response: Response) -> None:
        # A page may say that there is no such thing; what a page asks for is there.
        if response.status >= (500 if response.request.resource_type == "document" else 400):
            told.append(f"{response.status}: {response.url}")

    watched.page.on("dialog", on_dialog)
    watched.page.on("console", on_console)
    watched.page.on("pageerror", on_error)
    watched.page.on("response", on_response)
    watched.page.route("**/*", on_request)
