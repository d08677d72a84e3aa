"""Pictures of every page: two languages, light and dark, a telephone, a desk and a wall of screens.

python -m tests.console.screenshots --folder build/screenshots --page losses --language zh --theme dark --width 360

The pages come from the table of routes, over the worlds of tests/console/bad_night.py; Redis and a broker are real.
`index.html` in the folder shows each page beside itself. What went wrong on a page (axe-core, scripts, widths) is told.
"""

from __future__ import annotations

import argparse
import html
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, StorageState, expect, sync_playwright

from reconciler.clock import SystemClock
from reconciler.commands.status.report import StatusReport
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.settings.schema import Settings
from reconciler.web.roles import WebRole
from tests.console import bad_night
from tests.console.served import served
from tests.console.watched_page import Look, launched, opened, sign_in
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.ports import free_port
from tests.services.redis_server import RedisServer
from tests.services.topics import create_topic
from tests.unit.web.audit_cases import known_shelf
from tests.unit.web.reports import REPORTS
from tests.unit.web.sample_addresses import paths_of
from tests.unit.web.web_world import PASSWORD, with_user

LANGUAGES, THEMES, WIDTHS = ("en", "zh"), ("light", "dark"), (1280, 360, 2560)
#: Nobody: the page before the login.
PEOPLE = {"olga": WebRole.OPERATOR, "vera": WebRole.VIEWER, "": WebRole.ANYBODY}
#: How long charts and what is asked for in the background take at most.
READY_MS_MAX = 30_000
_UNREADY = "[data-charts]:not(:has(.uplot)), .empty[hx-get]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One page as one person finds it."""

    #: Of the files.
    name: str
    #: Without a slash at the end.
    base: str
    path: str
    who: str = bad_night.ON_CALL
    #: The page of an error, for which 503 is right.
    is_trouble: bool = False
    #: What is pressed there.
    press: Callable[[Page], None] | None = None


class Stage:
    """The worlds, each behind a server of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._clock = SystemClock()
        self._redis = stack.enter_context(RedisServer(folder / "redis"))
        self._broker = stack.enter_context(EmbeddedBroker())
        for topic, queues in (("RECONCILER_UNIQUE_KEY", 16), *((topic, 4) for topic in bad_night.topics())):
            create_topic(self._broker.port, topic, queues=queues, name_server_port=self._broker.port)

    def night(self) -> str:
        """Everything at once. Gives the address."""
        settings = self._settings("night")
        now_ms = self._clock.now_ms()
        bad_night.make_night(self._folder / "night", now_ms=now_ms, broker=self._broker.broker_name)
        return self._served(settings, audits=known_shelf(self._folder / "night", bad_night.audits(now_ms)))

    def quiet(self) -> str:
        """Nothing but rounds."""
        settings = self._settings("quiet")
        bad_night.make_quiet(self._folder / "quiet", now_ms=self._clock.now_ms())
        return self._served(settings)

    def away(self) -> str:
        """No ledger, Redis or broker answers."""
        settings = self._settings("away", away=True)
        return self._served(settings)

    def told(self, report: StatusReport) -> str:
        """The quiet world, of which status says this."""
        settings = self._settings("told")
        if not (self._folder / "told" / "ledger.db").exists():
            bad_night.make_quiet(self._folder / "told", now_ms=self._clock.now_ms())
        told = replace(report, asked_ms=self._clock.now_ms())
        return self._served(settings, status=LatestReading(lambda: told, clock=self._clock, interval_seconds=1))

    def _settings(self, name: str, *, away: bool = False) -> Settings:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        for person, role in PEOPLE.items():
            if person:
                with_user(folder / "users.json", person, role)
        nobody = f"127.0.0.1:{free_port()}"
        return bad_night.make_settings(
            folder,
            redis_url=f"redis://{nobody}/0" if away else self._redis.url,
            name_servers=nobody if away else self._broker.name_servers,
        )

    def _served(self, settings: Settings, **chosen: Any) -> str:
        return self._stack.enter_context(served(settings, **chosen))


def scenes_of(stage: Stage) -> Iterator[Scene]:
    """Every page of the night, then the same people's other nights."""
    night = stage.night()
    for route in bad_night.PAGES:
        for number, path in enumerate(paths_of(route, bad_night.PLACES)):
            name = route.name.removeprefix("page of ") + (f"-{number + 1}" if number else "")
            yield Scene(name=name, base=night, path=path, who="" if route.name == "login" else bad_night.ON_CALL)
    yield Scene(name="login-refused", base=night, path="/login", who="", press=_refused, is_trouble=True)
    yield Scene(name="overview-72-hours", base=night, path="/?hours=72")
    yield Scene(name="message-viewer", base=night, path=f"/messages/{bad_night.key(1)}", who="vera")
    yield Scene(name="message-body", base=night, path=f"/messages/{bad_night.key(1)}", press=_open_body)
    yield Scene(name="message-unknown", base=night, path="/messages/order-2026-0")
    yield Scene(name="brakes-viewer", base=night, path="/brakes", who="vera")
    yield Scene(name="losses-none-fits", base=night, path="/losses?topic=NOBODY")
    yield Scene(name="losses-all-judged", base=night, path="/losses?loss=all")
    yield Scene(name="trouble-404", base=night, path="/nothing-here", is_trouble=True)
    yield Scene(name="trouble-422", base=night, path="/losses?verdict=NONE", is_trouble=True)
    quiet = stage.quiet()
    for name in ("", "losses", "repairs", "outages", "quarantine", "actions", "jobs", "brakes"):
        yield Scene(name=f"quiet-{name or 'overview'}", base=quiet, path=f"/{name}")
    away = stage.away()
    for name in ("", "losses", "health"):
        yield Scene(name=f"away-{name or 'overview'}", base=away, path=f"/{name}", is_trouble=True)
    for name in ("calm", "held", "late", "a person is needed", "nothing yet"):
        yield Scene(name=f"told-{name.replace(' ', '-')}", base=stage.told(REPORTS[name]), path="/")


def _refused(page: Page) -> None:
    sign_in(page, bad_night.ON_CALL, "no")


def _open_body(page: Page) -> None:
    page.locator("form[action$='/body'] input[name=reason]").fill("the customer asks, INC-2290")
    page.locator("form[action$='/body'] button").click()


def looks_of(options: argparse.Namespace) -> Sequence[Look]:
    """Those that were asked for."""
    return _looks(options.width or WIDTHS, options.theme or THEMES, options.language or LANGUAGES)


def _looks(*asked: Sequence[Any]) -> Sequence[Look]:
    """Every one of these widths, themes and languages."""
    return [Look(width=width, dark=theme == "dark", language=language) for width, theme, language in product(*asked)]


def _cookies(browser: Browser, scenes: Sequence[Scene]) -> dict[tuple[str, str], StorageState | None]:
    """(address, person) -> the cookies of a login."""
    found: dict[tuple[str, str], StorageState | None] = {}
    for base, who in {(scene.base, scene.who): None for scene in scenes}:
        if not who:
            found[base, who] = None
            continue
        with opened(browser, base) as watched:
            watched.page.goto(f"{base}/login")
            sign_in(watched.page, who, PASSWORD)
            watched.page.locator(".who form").wait_for()
            found[base, who] = watched.page.context.storage_state()
    return found


def take(
    browser: Browser,
    scenes: Sequence[Scene],
    looks: Sequence[Look],
    folder: Path,
    *,
    checks: bool,
    seen: Callable[[Page, Look, Path], None] | None = None,
) -> Iterator[tuple[Scene, Look, Path | None, Sequence[str]]]:
    """One picture after the other, with what went wrong; None: there is no page at this address.

    `seen` is called with each page that was taken.
    """
    cookies = _cookies(browser, scenes)
    for look, base, who in {(look, scene.base, scene.who): None for look in looks for scene in scenes}:
        with opened(browser, base, look=look, cookies=cookies[base, who]) as watched:
            for scene in scenes:
                if (scene.base, scene.who) != (base, who):
                    continue
                watched.troubles.clear()
                file = _picture(watched.page, scene, folder / f"{scene.name}.{look}.png")
                if file and seen is not None:
                    seen(watched.page, look, file)
                troubles = [] if scene.is_trouble else [*watched.troubles]
                if file and checks:
                    troubles += watched.violations()
                    if (over := watched.overflow_pixels()) > 0:
                        troubles.append(f"{over} px wider than the window")
                yield scene, look, file, troubles


def _picture(page: Page, scene: Scene, file: Path) -> Path | None:
    page.goto(scene.base + scene.path)
    if page.locator("main").count() == 0 or page.url.partition("?")[0] != (scene.base + scene.path).partition("?")[0]:
        return None  # a part of a page, or a redirect
    if scene.press is not None:
        scene.press(page)
    expect(page.locator(_UNREADY)).to_have_count(0, timeout=READY_MS_MAX)
    page.screenshot(path=file, full_page=True)
    return file


def write_index(folder: Path, scenes: Sequence[Scene]) -> Path:
    """The contact sheet: a row a page, the same page beside itself."""
    rows = []
    for scene in scenes:
        files = [f"{scene.name}.{look}.png" for look in _looks(WIDTHS, THEMES, LANGUAGES)]
        shown = "".join(
            f'<a href="{name}"><img loading="lazy" src="{name}" alt="{name}"></a>'
            for name in map(html.escape, files)
            if (folder / name).exists()
        )
        if shown:
            rows.append(f"<h2>{html.escape(scene.name)} <small>{html.escape(scene.path)}</small></h2><p>{shown}</p>")
    style = (
        "body{font:16px sans-serif;background:#777;color:#fff}p{display:flex;gap:8px;overflow-x:auto}img{height:420px}"
    )
    index = folder / "index.html"
    index.write_text(f"<!doctype html><meta charset=utf-8><title>Pages</title><style>{style}</style>{''.join(rows)}\n")
    return index


def _progress(done: int, of: int, what: str) -> None:
    if sys.stderr.isatty():
        bar, end = "█" * (30 * done // of), "\n" if done == of else ""
        sys.stderr.write(f"\r\x1b[K{bar:░<30} {done}/{of} {what[:60]}{end}")
        sys.stderr.flush()


def main() -> int:
    """0: nothing went wrong on any page; 1: something did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--page", action="append", help="a part of a page's name; may be given again")
    parser.add_argument("--language", action="append", choices=LANGUAGES)
    parser.add_argument("--theme", action="append", choices=THEMES)
    parser.add_argument("--width", action="append", type=int)
    parser.add_argument("--no-checks", action="store_true", help="pictures only: half the time")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    logging.disable()  # that something is away is what some pages are about
    failed = 0
    with TemporaryDirectory(prefix="reconciler-screenshots-") as worlds, ExitStack() as stack:
        every = [*scenes_of(Stage(Path(worlds), stack))]
        scenes = [s for s in every if not options.page or any(part in s.name for part in options.page)]
        looks = looks_of(options)
        browser = launched(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        taken = take(browser, scenes, looks, options.folder, checks=not options.no_checks)
        for number, (scene, look, _, troubles) in enumerate(taken, 1):
            _progress(number, len(scenes) * len(looks), f"{scene.name} {look}")
            for trouble in troubles:
                failed += 1
                sys.stdout.write(f"{scene.name} {look}: {trouble}\n")
                sys.stdout.flush()
        sys.stdout.write(f"{write_index(options.folder, every)}\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
