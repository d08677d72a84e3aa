"""Pages of docs in the console: every link and anchor leads somewhere, nothing of a page is code, runbooks live."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from reconciler.clock import ManualClock
from reconciler.commands import docs
from reconciler.commands.glossary import GLOSSARY, HOUSE_WORDS, with_glossary
from reconciler.commands.status.reading import read_status
from reconciler.commands.status.report import StatusReport
from reconciler.errors import DependencyAway
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.settings.schema import Settings
from reconciler.web.console import live
from reconciler.web.console.documents import document_of
from reconciler.web.services import WebServices
from tests.unit.web.console_world import PREFIX, asked, page_of, services_of, settings_of
from tests.unit.web.hostile_ledger import make_empty_world, make_hostile_world

PAGES = sorted(page for page in docs.page_names() if not page.startswith(docs.CHINESE))
RUNBOOKS = [page for page in PAGES if page.startswith("runbooks/")]
#: What pages of ours may hold; `style` in a cell of a table needs no more than the CSP gives.
_ATTRIBUTES = {"href", "id", "title", "class", "tabindex", "role", "aria-labelledby", "src", "alt", "rel", "start"}


ReadOf = Callable[[Settings], WebServices]


class Reader(HTMLParser):
    """The attributes and anchors of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def values(self, tag: str, name: str) -> list[str]:
        return [value for one, attribute, value in self.attributes if (one, attribute) == (tag, name)]


@cache
def html_of(page: str, language: str) -> str:
    return "".join(str(part.html) for part in document_of(page, language, PREFIX).parts)


@cache
def anchors_of(page: str, language: str) -> set[str]:
    found = Reader(html_of(page, language))
    return {value for _, name, value in found.attributes if name == "id"}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[WebServices]:
    found = services_of(settings_of(tmp_path))
    yield found
    found.connections.close()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_link_of_every_page_leads_to_a_page_or_a_section_of_the_console(language: str) -> None:
    astray = []
    for page in PAGES:
        for href in Reader(html_of(page, language)).values("a", "href"):
            path, _, anchor = unquote(href).partition("#")
            if path.startswith(("https://", "http://", f"{PREFIX}/view/set?")):
                continue
            target = path.removeprefix(f"{PREFIX}/docs/") or page
            if docs.in_language(target, language) not in docs.page_names() or (
                anchor and anchor not in anchors_of(target, language)
            ):
                astray.append((page, href))
    # A page without a Chinese one names sections in English.
    english_only = {page for page in PAGES if docs.in_language(page, language) == page}
    assert not [
        (page, href) for page, href in astray if language == "en" or page not in english_only or "#" not in href
    ]


def test_a_page_that_there_is_in_one_language_is_shown_in_it_and_says_so(services: WebServices) -> None:
    shown = page_of(services, "/docs/reference/holes.md", "zh")
    assert '<article class="document" lang="en">' in shown
    assert "本页暂无中文版" in shown
    assert "本页暂无中文版" not in page_of(services, "/docs/how-to/install.md", "zh")


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("/docs", "Check-back reconciler"),
        ("/docs/", "Check-back reconciler"),
        ("/docs/runbooks", "Check-back reconciler"),
        ("/docs/runbooks/BreakerOpen", "BreakerOpen"),
        ("/docs/zh/runbooks/BreakerOpen.md", "BreakerOpen"),
        ("/docs/how-to/../runbooks/BreakerOpen.md", "BreakerOpen"),
    ],
)
def test_a_page_is_found_by_the_names_that_alerts_and_notices_have(
    services: WebServices, address: str, title: str
) -> None:
    assert f"<title>{title} · " in page_of(services, address)


@pytest.mark.parametrize(
    "address",
    [
        "nowhere.md",
        "../../CONTRIBUTING.md",
        "..%2f..%2fCONTRIBUTING.md",
        "generate.py",
        "x.svg",
        "../../x.svg",
        "%00.svg",
        f"{'a' * 300}.svg",
    ],
)
def test_nothing_but_pages_and_drawings_of_docs_is_served(services: WebServices, address: str) -> None:
    assert asked(services, f"/docs/{address}").status == 404


def test_a_drawing_is_shown_and_a_picture_of_the_console_is_left_out(services: WebServices) -> None:
    (source,) = Reader(html_of("explanation/how-it-works.md", "en")).values("img", "src")[:1]
    answer = asked(services, source.removeprefix(PREFIX))
    assert (answer.status, answer.content_type) == (200, "image/svg+xml")
    assert not Reader(html_of("how-to/console.md", "en")).values("img", "src")


def test_no_page_brings_code_or_attributes_that_run() -> None:
    for page in PAGES:
        for language in ("en", "zh"):
            read = Reader(html_of(page, language))
            assert {name for _, name, _ in read.attributes} <= _ATTRIBUTES, page
            assert not [src for src in read.values("img", "src") if not src.startswith(f"{PREFIX}/docs/")]
            assert not [href for href in read.values("a", "href") if href.startswith("javascript:")]


def test_html_in_a_page_is_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hostile.md").write_text(
        "# <b>x</b>\n<script>alert(1)</script>\n\n{{ 7 * 7 }} [a](javascript:alert(1)) ![b](https://a.example/b.png)\n"
    )
    monkeypatch.setattr(docs, "folder", lambda: tmp_path)
    monkeypatch.setattr(docs, "page_names", lambda: frozenset({"hostile.md"}))
    shown = str(document_of("hostile.md", "en", "/elsewhere").parts[0].html)
    assert "<script" not in shown
    assert "<b>" not in shown
    assert "{{ 7 * 7 }}" in shown
    assert 'href="javascript' not in shown
    assert "a.example" not in shown


@pytest.mark.parametrize(
    ("page", "text", "linked"),
    [
        ("how-to/x.md", "An outbox, and outboxes.", "An [outbox](../glossary.md), and outboxes."),
        ("x.md", "Two Outboxes.", "Two [Outboxes](glossary.md)."),
        ("zh/how-to/x.md", "发件箱和发件箱", "[发件箱](../glossary.md)和发件箱"),
        ("x.md", "# The outbox\n`outbox` [an outbox](y.md)\n```\noutbox\n```", None),
        ("x.md", "half an hour, half of it, mailbox", None),
        ("x.md", "a unique-key topic", "a [unique-key topic](glossary.md)"),
        (
            "x.md",
            "<!-- live: lost -->\nthe ledger\n<!-- /live -->\nthe ledger",
            "<!-- live: lost -->\nthe ledger\n<!-- /live -->\nthe [ledger](glossary.md)",
        ),
        ("glossary.md", "An outbox.", None),
    ],
)
def test_the_first_use_of_a_house_word_leads_to_the_glossary_and_tells_its_meaning(
    page: str, text: str, linked: str | None
) -> None:
    found = with_glossary(text, page)
    assert re.sub(r' "[^"]+"', "", found) == (linked or text)
    assert linked is None or re.search(r'glossary\.md "[^"]{5,}"', found)


def test_every_house_word_is_in_the_glossary() -> None:
    rows = re.findall(r"^\| (.+?) \|", docs.source(GLOSSARY), re.MULTILINE)
    assert {word for row in rows for word in row.split(", ")} >= HOUSE_WORDS


def words_of(page: str, language: str) -> Iterator[str]:
    for part in document_of(page, language, PREFIX).parts:
        yield from part.live


def test_each_runbook_shows_in_both_languages_what_it_names_and_every_word_is_used() -> None:
    used = set()
    for page in RUNBOOKS:
        words = list(words_of(page, "en"))
        assert words, page
        assert list(words_of(page, "zh")) == words
        used |= set(words)
    assert used == live.WORDS


def read(services: WebServices, reading: Callable[[], StatusReport]) -> WebServices:
    """Their status is read already, and by no thread that outlives the test."""
    status = LatestReading(reading, clock=services.clock, interval_seconds=3_600.0)
    ended = status.begin()
    assert ended is not None
    assert ended.wait(60)
    return replace(services, status=status)


@pytest.fixture
def read_of() -> Iterator[ReadOf]:
    """Services of settings, whose status is read; closed with the test."""
    with ExitStack() as stack:

        def opened(settings: Settings) -> WebServices:
            services = services_of(settings)
            stack.callback(services.connections.close)
            return read(services, lambda: read_status(services.connections))

        yield opened


def test_a_runbook_is_readable_while_the_ledger_is_away(services: WebServices) -> None:
    def away() -> StatusReport:
        raise DependencyAway("the ledger")

    without_ledger = read(services, away)
    for page in RUNBOOKS:
        shown = page_of(without_ledger, f"/docs/{page}")
        assert "it says" in shown
        assert "What is so now is not known" in shown


def test_runbooks_show_hostile_values_as_text_with_the_acts_that_there_are(tmp_path: Path, read_of: ReadOf) -> None:
    services = read_of(make_hostile_world(tmp_path, now_ms=ManualClock().now_ms()))
    for page in RUNBOOKS:
        shown = page_of(services, f"/docs/{page}")
        assert "<script>alert" not in shown
        assert "<img src=x" not in shown
    breaker = page_of(services, "/docs/runbooks/BreakerOpen.md")
    assert "/lift" in breaker
    assert 'action="' in breaker
    assert "In the <a" not in breaker, "the text for who reads it elsewhere"


def test_a_calm_runbook_says_that_nothing_is_stopped(tmp_path: Path, read_of: ReadOf) -> None:
    services = read_of(make_empty_world(tmp_path, now_ms=ManualClock().now_ms()))
    assert "No topic is stopped." in page_of(services, "/docs/runbooks/BreakerOpen.md")
    assert "No outage is open." in page_of(services, "/docs/runbooks/RedisDown.md")


def test_the_site_and_the_command_show_text_in_the_place_of_live_values() -> None:
    for page in RUNBOOKS:
        assert "console" in docs.find(page).partition("## Now")[2].partition("## Look")[0]
        assert "<!--" not in docs.find(page)
