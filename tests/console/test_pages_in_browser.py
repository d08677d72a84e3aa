"""Every page in a real browser, over a ledger whose every text is hostile, and over one without rows.

No script but the console's own runs, no other host is asked, nothing is wider than a telephone or a laptop, what is
pressed has a name of its own and room for a finger, axe finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Page, expect

from reconciler.clock import SystemClock
from reconciler.settings.schema import Settings
from reconciler.web.audits.check import AuditCheck
from reconciler.web.roles import WebRole
from tests.console.served import served
from tests.console.watched_page import Look, WatchedPage, opened, sign_in
from tests.unit.web.audit_cases import HOSTILE_AUDITS, known_shelf
from tests.unit.web.hostile_ledger import ADMIN, make_empty_world, make_hostile_world
from tests.unit.web.ledger_of_cases import key
from tests.unit.web.sample_addresses import page_addresses
from tests.unit.web.web_world import PASSWORD, with_user

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
#: Names in paths and searches find nothing where there is no row.
EMPTY_ADDRESSES = [address for address in page_addresses() if address.count("/") == 1 and "?" not in address]


def _by_night(addresses: Sequence[str], kind_of: Callable[[str], Hashable]) -> list[ParameterSet]:
    """By day the first address of each kind."""
    first = {kind_of(address): address for address in reversed(addresses)}.values()
    return [pytest.param(one, id=one[:40], marks=() if one in first else pytest.mark.nightly) for one in addresses]


def _page_of(address: str) -> tuple[str, int]:
    """Its name, and how many names follow."""
    path, _, _ = address.partition("?")
    return path.split("/")[1], path.count("/")


#: Made like those before them: axe takes its time for each.
_ALIKE = "tbody tr:nth-child(n+9), li:nth-child(n+16), option:nth-child(n+30)"


#: Each ledger is seen at both widths, in both languages and in both colours.
LOOKS = (pytest.param(Look(), marks=pytest.mark.nightly), Look(language="zh-CN", dark=True, width=360))
EMPTY_LOOKS = (pytest.param(Look(language="zh-CN", width=360), marks=pytest.mark.nightly), Look(dark=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tour:
    """One browser's page, on which one person looks at all pages in turn."""

    url: str
    watched: WatchedPage
    #: Of the window.
    width: int

    @property
    def page(self) -> Page:
        """What is open."""
        return self.watched.page

    def open(self, address: str) -> None:
        """With its charts drawn."""
        self.page.goto(self.url + address)
        if self.page.locator("[data-charts]").count():
            self.page.locator("figure canvas").first.wait_for()

    def require_well(self) -> None:
        """Unfolds what is folded. Fails with all that is wrong on the page."""
        self.watched.hold_still()
        self.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        barriers = [*self.watched.barriers()]
        self.page.evaluate(f"document.querySelectorAll('{_ALIKE}').forEach((one) => one.remove())")
        told = [*barriers, *self.watched.troubles, *self.watched.violations()]
        self.watched.troubles.clear()
        self.page.set_viewport_size({"width": self.width, "height": 900})
        assert not told


@pytest.fixture(scope="module")
def hostile_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _world_at(tmp_path_factory.mktemp("hostile"), make_hostile_world, HOSTILE_AUDITS) as url:
        yield url


@pytest.fixture(scope="module")
def empty_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _world_at(tmp_path_factory.mktemp("empty"), make_empty_world, {}) as url:
        yield url


@pytest.fixture(scope="module", params=LOOKS, ids=str)
def hostile(request: pytest.FixtureRequest, chromium: Browser, hostile_url: str) -> Iterator[Tour]:
    with _touring(chromium, hostile_url, request.param) as tour:
        yield tour


@pytest.fixture(scope="module", params=EMPTY_LOOKS, ids=str)
def empty(request: pytest.FixtureRequest, chromium: Browser, empty_url: str) -> Iterator[Tour]:
    with _touring(chromium, empty_url, request.param) as tour:
        yield tour


@contextmanager
def _world_at(folder: Path, make_world: Callable[..., Settings], audits: Mapping[str, AuditCheck]) -> Iterator[str]:
    """Nobody listens where Redis and the brokers should be: pages say so, and are filled from the databases."""
    with_user(folder / "users.json", ADMIN, WebRole.OPERATOR)
    settings = make_world(folder, now_ms=SystemClock().now_ms(), RECONCILER_WEB__USERS_FILE=str(folder / "users.json"))
    with served(settings, audits=known_shelf(folder, audits)) as url:
        yield url


@contextmanager
def _touring(chromium: Browser, url: str, look: Look) -> Iterator[Tour]:
    with opened(chromium, url, look=look) as watched:
        watched.page.goto(f"{url}/login")
        sign_in(watched.page, ADMIN, PASSWORD)
        expect(watched.page.locator(".who")).to_contain_text(ADMIN)
        yield Tour(url=url, watched=watched, width=look.width)


@pytest.mark.parametrize("address", _by_night(page_addresses(), _page_of))
def test_a_hostile_text_runs_leaves_or_bends_a_page(hostile: Tour, address: str) -> None:
    hostile.open(address)
    hostile.require_well()


def test_a_hostile_body_runs_leaves_or_bends_the_page_that_opens_it(hostile: Tour) -> None:
    hostile.open(f"/messages/{key(1)}")
    hostile.page.locator("[name=reason]").last.fill("the test looks into it")
    hostile.page.locator(f"form[action='/messages/{key(1)}/body'] button").click()
    expect(hostile.page.locator("pre.body")).not_to_be_empty()
    hostile.require_well()


#: By day the overview and one listing.
@pytest.mark.parametrize("address", _by_night(EMPTY_ADDRESSES, lambda address: address == "/"))
def test_a_page_without_a_row_is_readable_for_everybody(empty: Tour, address: str) -> None:
    empty.open(address)
    empty.require_well()
