"""What every page has: language, colours, time zone, files of its own; and what a choice of them cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import pytest

from reconciler.clock import ManualClock
from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.docs import in_language, page_names
from reconciler.errors import ConfigurationError
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.web.console.assets import asset_path, assets
from reconciler.web.console.moments import moment
from reconciler.web.console.navigation import NAVIGATION
from reconciler.web.console.view import COOKIE, View, view_of, zones
from reconciler.web.exchange import WebRequest
from reconciler.web.services import WebServices
from tests.left_threads import ended_threads
from tests.unit.web.console_world import PREFIX, asked, route_of, services_of, settings_of

DOCS = Path(__file__).parents[3] / "docs"
TEMPLATES = DOCS.parent / "reconciler/web/console/templates"
VENDOR = files("reconciler.web.console") / "static" / "vendor"


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """A page that reads servers goes on reading behind its test, and threads are counted in others."""
    with ended_threads():
        yield


@pytest.fixture
def services(tmp_path: Path) -> WebServices:
    return unread(tmp_path)


def unread(folder: Path, **variables: str) -> WebServices:
    """Services whose page of health asks no server."""
    nothing: LatestReading[Sequence[Diagnosis]] = LatestReading(list, clock=ManualClock(), interval_seconds=3_600)
    nothing.get()
    return replace(services_of(settings_of(folder, **variables)), health=nothing)


def text_of(services: WebServices, address: str, **more: str) -> str:
    return asked(services, address, **more).body.decode()  # type: ignore[arg-type]  # cookies are not given here


def view(accepted: str = "", **cookies: str) -> View:
    return view_of(
        WebRequest(method="GET", path="/", headers={"accept-language": accepted}, request_id="r", cookies=cookies)
    )


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("fr, zh-TW;q=0.3, en;q=0.2", "zh"),
        ("de;q=0.9, en-GB;q=0.5, zh;q=0.4", "en"),
        ("zh;q=0", "en"),
        ("zh;q=x, en;q=0.1", "en"),
        ("*", "en"),
    ],
)
def test_a_browser_gets_the_language_that_it_asks_for(accepted: str, language: str) -> None:
    assert view(accepted).language == language


def test_a_choice_lives_in_a_cookie_and_outlives_the_wish_of_the_browser(services: WebServices) -> None:
    answer = asked(services, "/view/set?language=zh&theme=dark&zone=Asia/Shanghai&back=/view%3Fa%3D1")
    assert answer.status == 303
    assert answer.headers["Location"] == f"{PREFIX}/view?a=1"
    name, _, rest = answer.cookies[0].partition("=")
    value, _, about = rest.partition(";")
    assert name == COOKIE
    assert about.strip().startswith(f"Path={PREFIX}/;")
    assert {"HttpOnly", "SameSite=Lax"} <= {part.strip() for part in about.split(";")}
    page = asked(services, "/view", cookies={COOKIE: value}).body.decode()
    assert '<html lang="zh" data-theme="dark" data-zone="Asia/Shanghai">' in page
    assert "+08:00</time>" in page


@pytest.mark.parametrize(
    "cookie", ["language=xx", "theme=<b>", "zone=../../etc/passwd", "%", "a" * 9_000, "zone=\x00"], ids=range(6)
)
def test_a_cookie_that_is_none_of_ours_is_no_page_without_colours(services: WebServices, cookie: str) -> None:
    page = asked(services, "/view", cookies={COOKIE: cookie}).body.decode()
    assert '<html lang="en" data-theme="system" data-zone="UTC">' in page


@pytest.mark.parametrize("chosen", ["language=fr", "theme=red", "zone=Mars/Olympus"])
def test_a_choice_that_there_is_not_is_refused(services: WebServices, chosen: str) -> None:
    assert asked(services, f"/view/set?{chosen}").status == 422


@pytest.mark.parametrize(
    "back",
    ["//evil.example", "https://evil.example/", "/\\evil.example", "/a\r\nSet-Cookie: x", "/é", "", "javascript:"],
)
def test_a_choice_leads_nowhere_but_into_this_console(services: WebServices, back: str) -> None:
    assert asked(services, f"/view/set?theme=dark&back={quote(back)}").headers["Location"] == f"{PREFIX}/"


def test_every_file_that_a_page_names_is_served_for_ever_and_nothing_else_is(services: WebServices) -> None:
    page = text_of(services, "/view")
    named = re.findall(rf'(?:href|src)="{PREFIX}(/static/[^"]+)"', page)
    assert named
    for address in {*named, *(asset_path(name) for name in assets())}:
        answer = asked(services, address)
        assert answer.status == 200
        assert "immutable" in answer.headers["Cache-Control"]
    digest = assets()["console.css"].digest
    for other in (
        f"/static/{'0' * 16}/console.css",
        f"/static/{digest}/console.js",
        f"/static/{digest}/../rendering.py",
        f"/static/{digest}/vendor/README.md",
        f"/static/{digest}//etc/passwd",
    ):
        assert asked(services, other).status == 404


def test_code_of_others_is_what_its_page_says() -> None:
    told = dict(re.findall(r"^\| `([\w.]+)` .*`([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.MULTILINE))
    found = {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name.endswith(("js", "css"))
    }
    assert told == found


def test_the_navigation_leads_to_pages() -> None:
    assert [route_of(path)[0].path for path, _ in NAVIGATION] == [path for path, _ in NAVIGATION]


def test_a_time_that_no_calendar_has_stays_a_number() -> None:
    utc = View().zone_info
    assert moment(10**18, utc) == "1000000000000000000 ms"
    assert moment(None, utc) == moment(True, utc) == "—"
    assert moment(253402300799000, View(zone="Asia/Tokyo").zone_info) == "9999-12-31T23:59:59Z"
    assert moment(0, utc) == '<time datetime="1970-01-01T00:00:00Z">1970-01-01 00:00:00Z</time>'


def test_utc_is_there_on_a_machine_without_time_zones() -> None:
    assert zones()[0] == "UTC"
    assert "localtime" not in zones()


def test_a_page_of_docs_is_one_press_away_here_or_in_the_copy_that_is_named(tmp_path: Path) -> None:
    assert f'<a href="{PREFIX}/docs/how-to/troubleshooting.md">' in text_of(unread(tmp_path), "/health")
    served = unread(tmp_path, RECONCILER_WEB__DOCS_URL="https://wiki.example/docs/")
    assert 'href="https://wiki.example/docs/how-to/troubleshooting.md"' in text_of(served, "/health")


def test_who_reads_chinese_is_led_to_the_chinese_page_of_docs(tmp_path: Path) -> None:
    served = unread(tmp_path, RECONCILER_WEB__DOCS_URL="https://wiki.example/docs")
    pages = [text_of(served, path, language="zh") for path in ("/health", "/audits")]
    linked = set(re.findall('"https://wiki.example/docs/([^"]+)"', "".join(pages)))
    assert linked == {"zh/how-to/troubleshooting.md", "zh/how-to/audit.md", "zh/reference/statement.md"}


def test_every_page_of_docs_that_the_console_names_is_there_in_both_languages() -> None:
    templates = "".join(page.read_text() for page in TEMPLATES.glob("*.html"))
    named = re.findall(r"""document\("([^"]+\.md)"\)""", templates)
    assert "reference/audit-classes.md" in named
    for page in [*named, *(f"runbooks/{page.name}" for page in DOCS.glob("runbooks/*.md"))]:
        assert page in page_names()
        assert in_language(page, "zh") == f"zh/{page}"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "/docs", "https://a b", "https://é"])
def test_an_address_that_is_none_is_no_link(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match="docs_url"):
        settings_of(tmp_path, RECONCILER_WEB__DOCS_URL=url)
