"""Pages over the ledger: every row is reached, a search means what it says, an empty list is no calm by itself."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlencode

import pytest

from reconciler.clock import ManualClock
from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.doctor.areas import area
from reconciler.commands.doctor.roles import ROLE
from reconciler.commands.listings import LISTINGS
from reconciler.contract.kept_facts import TOO_MANY_SO_FAR
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import OUTAGE, QUARANTINE, CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.evidence.witness_role import PRIMARY
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from reconciler.web.console import listings, names
from reconciler.web.console.catalogue import catalogue_of
from reconciler.web.console.listings import AGES, LISTING_PAGES, LOSS_PAGE, LOSSES, ListingPage, filter_of
from reconciler.web.console.navigation import NAVIGATION
from reconciler.web.services import WebServices
from reconciler.wiring.databases import database_fact
from reconciler.words import LANGUAGES, said
from tests.unit.web.console_world import HOSTILE, PREFIX, asked, page_of, route_of, services_of, settings_of
from tests.unit.web.ledger_of_cases import NEWEST_MS
from tests.unit.web.reports import HELD, KNOWN, NOW_MS, OPEN, fact_of, facts_of, report_of, status_of

PAGES = [path for path, _ in NAVIGATION if path not in ("/", "/jobs")]
#: Page -> fields of its search and columns, in the order that people know.
FOUND_BY = {
    "candidates": (
        "name topic group verdict state loss age",
        "unique_key first_seen_ms topic group state verdict loss_verdict attempts updated_at_ms",
    ),
    "repairs": (
        "name topic state age",
        "unique_key topic scope state rung attempts created_at_ms done_at_ms answer",
    ),
    "rounds": (
        "topic group age",
        (
            "stored_at_ms topic group shard generation announced matched "
            "pending_before pending_added pending_matched pending_after void"
        ),
    ),
    "outages": ("age", "started_at_ms closed_at_ms reason scanned left_out"),
    "quarantine": ("age", "seen_at_ms reason detail unique_key_topic broker queue offset"),
    "actions": (
        "name topic group by age",
        "started_at_ms by command topic group unique_key detail result ended_at_ms",
    ),
}
of_each_listing = pytest.mark.parametrize("of", LISTING_PAGES, ids=lambda of: of.what)


@pytest.fixture
def services(folder_of_cases: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServices]:
    made = services_of(settings_of(folder_of_cases), clock=ManualClock(NEWEST_MS))
    _given(made, monkeypatch)
    with made.connections:
        yield made


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServices]:
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    ledger_metadata.create_all(engine)
    engine.dispose()
    made = services_of(settings_of(tmp_path))
    _given(made, monkeypatch)
    with made.connections:
        yield made


def _given(services: WebServices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status and health without anything to ask."""
    report = report_of(status_of(weaker=facts_of(HOSTILE)), holds=(HELD, OPEN))
    found = [
        Diagnosis(check=area("roles"), level="ok", found=ROLE(found=(PRIMARY(),))),
        Diagnosis(check=database_fact("inbox", HOSTILE), level="fail", found=fact_of(HOSTILE)),
    ]
    monkeypatch.setattr(WebServices, "newest_status", lambda _services: report)
    answers = {id(services.status): report, id(services.health): found}
    monkeypatch.setattr(type(services.status), "get", lambda reading: answers.get(id(reading)))


@pytest.mark.parametrize(
    ("query", "title", "runbook"),
    [
        ("", "Losses", "LostMessages"),
        ("state=QUARANTINED", "Losses", "LostMessages"),
        ("state=QUARANTINED&loss=all", "Messages that wait for a person", "Quarantined"),
        ("loss=all", "Messages that were judged", "LostMessages"),
        ("loss=no", "Messages that were judged", "LostMessages"),
    ],
)
def test_what_was_not_lost_stands_under_proved_to_be_lost(
    services: WebServices, query: str, title: str, runbook: str
) -> None:
    page = page_of(services, f"/losses?{query}")
    assert f"<h1>{title}</h1>" in page
    assert ("proved to be lost" in page) is (title == "Losses")
    assert f"runbooks/{runbook}.md" in page


def test_a_list_asks_for_business_ids_of_its_keys_and_shows_them_with_nothing_obeyed(
    services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_of(services, "/losses")
    (asked_for,) = re.findall(rf'hx-get="{PREFIX}/names\?keys=([^"]+)" hx-trigger="load"', page)
    keys = asked_for.split("%2C")
    assert keys == list(dict.fromkeys(keys_on(page)))
    assert all(f"name-{key}" in page for key in keys)
    assert "/names" not in page_of(services, "/rounds")
    monkeypatch.setattr(names, "business_ids_of", lambda _connections, keys: dict.fromkeys(keys, HOSTILE))
    told = page_of(services, f"/names?keys={keys[0]},no%20key,{keys[1]}")
    assert re.findall(r'hx-swap-oob="innerHTML:\.name-([^"]*)"', told) == keys[:2]
    assert "<script>" not in told


def test_refused_announcements_and_quarantined_messages_have_one_name() -> None:
    told = [catalogue_of("en").texts[key] for key in ("navigation.quarantine", "listing.titles.quarantine")]
    assert set(told) == {"Refused announcements"}


def test_a_group_is_behind_by_instants_or_by_figures_without_a_time(
    services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = replace(KNOWN, waiting=7, waiting_since_ms=NOW_MS - 540_000)
    silent = Watermark(state=WatermarkState.UNKNOWN, at_ms=0, detail=fact_of("no broker answers"))
    other = Subscription(environment="production", topic="PAYMENTS", group="g")
    report = report_of(status_of(watermark=behind), status_of(), status_of(other, watermark=silent))
    monkeypatch.setattr(type(services.status), "get", lambda _: report)
    told, runbook = (
        " ".join(re.sub("<[^>]+>", " ", page_of(services, address)).split())
        for address in ("/rounds", "/docs/runbooks/WatermarkStuck.md")
    )
    assert "asked at 2023-11-14 22:13:20Z" in told
    assert "9 min, messages: 7 (it has read until 2023-11-14 22:13:15Z )" in told
    assert "9 min, messages: 7 (it has read until" in runbook
    assert "nothing (it has read until" in told
    assert "not known no broker answers" in told


def keys_on(page: str) -> list[str]:
    return re.findall(rf'href="{PREFIX}/messages/([0-9A-F]+)"', page)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("path", PAGES)
def test_every_page_shows_hostile_rows_and_obeys_none(services: WebServices, path: str, language: str) -> None:
    page = page_of(services, f"{path}?loss=all" if path == "/losses" else path, language)
    assert "<script>" not in page
    assert not set(page) & {"\x1b", "\u202e"}
    if path != "/docs":  # a page of docs begins as it was written
        assert re.search(r'<p class="lead">[^<]+', page), "a page says what it shows"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("path", [*PAGES, "/", "/jobs", "/view", "/messages"])
def test_every_link_and_form_of_a_page_leads_to_a_page(services: WebServices, path: str, language: str) -> None:
    page = page_of(services, path, language)
    addresses = re.findall(r'\b(?:href|src|action|hx-get|data-charts)="([^"]+)"', page)
    assert addresses
    for address in map(html.unescape, addresses):
        if address.startswith("#"):
            assert f'id="{unquote(address[1:])}"' in page
            continue
        assert address.startswith(f"{PREFIX}/"), address
        if f'action="{address}" method="post"' not in page:
            route_of(re.sub(r"[?#].*", "", address.removeprefix(PREFIX)))


@of_each_listing
def test_every_row_is_on_one_page_and_on_one_only(
    services: WebServices, of: ListingPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = asked_of(services, of)
    monkeypatch.setattr(listings, "ROWS_A_PAGE", min(listings.ROWS_A_PAGE, max(1, listed // 2)))
    address = f"{of.path}?loss=all" if "loss" in of.fields else of.path
    seen: list[str] = []
    for _ in range(listed + 1):
        page = page_of(services, address)
        seen += re.findall(r"<tr>\n(.*?)</tr>", page.partition('id="rows"')[2].partition("<tbody>")[2], re.DOTALL)
        following = re.search(r'href="([^"]+)" rel="next"', page)
        if following is None:
            break
        address = html.unescape(following[1]).removeprefix(PREFIX)
    assert len(seen) == listed
    assert listed > 0


def asked_of(services: WebServices, of: ListingPage) -> int:
    from reconciler.commands.list import list_rows
    from reconciler.telling.ports.paging import LedgerFilter

    return len(list_rows(services.connections, of.what, only=LedgerFilter(), limit=10_000).rows)


def test_losses_are_shown_first_and_everything_on_demand(services: WebServices) -> None:
    lost = page_of(services, "/losses")
    every = page_of(services, "/losses?loss=all")
    assert ">SETTLED<" in lost
    assert "proved to be lost, and what became of each" in lost, "settled ones arrived after all"
    assert 0 < len(keys_on(lost)) < len(keys_on(every))
    assert all(f">{verdict}</span>" not in lost for verdict in (Verdict.CONSUMED, Verdict.LAGGING))


@pytest.mark.parametrize("verdict", Verdict)
def test_a_search_by_verdict_finds_that_verdict_only(services: WebServices, verdict: Verdict) -> None:
    page = page_of(services, f"/losses?loss=all&verdict={verdict}")
    rows = re.findall(r"<tr>\n(.*?)</tr>", page.partition('id="rows"')[2].partition("<tbody>")[2], re.DOTALL)
    verdicts = [re.findall(r"<td[^>]*>.*</td>", row)[LOSS_PAGE.columns.index("verdict")] for row in rows]
    assert {re.sub(r".*>([A-Z_]+)</span>.*", r"\1", cell) for cell in verdicts} == {verdict}


def test_a_search_by_state_topic_and_key_is_kept_on_the_next_page(services: WebServices) -> None:
    page = page_of(services, "/losses?" + urlencode({"loss": "all", "topic": "ORDERS", "age": "younger-72"}))
    (following,) = re.findall(r'href="([^"]+)" rel="next"', page) or [""]
    if following:
        assert "topic=ORDERS" in following
        assert "age=younger-72" in following
    assert '<option value="younger-72" selected>' in page
    one = keys_on(page)[0]
    assert set(keys_on(page_of(services, f"/losses?loss=all&name={one}"))) == {one}


@pytest.mark.parametrize(
    "query", ["state=GONE", "verdict=LOST", "age=ever", "loss=perhaps", "cursor=x", "cursor=W10", "name=" + "x" * 300]
)
def test_a_search_that_means_nothing_is_refused_and_not_answered_with_nothing(
    services: WebServices, query: str
) -> None:
    assert asked(services, f"/losses?{query}").status == 422


def test_a_cursor_of_another_page_is_refused(services: WebServices) -> None:
    for of in LISTING_PAGES:
        page = page_of(services, f"{of.path}?loss=all" if "loss" in of.fields else of.path)
        following = re.search(r'cursor=([^"&]+)[^"]*" rel="next"', page)
        if following is not None:
            other = "/rounds" if of.path != "/rounds" else "/losses"
            assert asked(services, f"{other}?cursor={following[1]}").status == 422


def test_ages_begin_and_end_at_now() -> None:
    now_ms = 100 * 3_600_000
    young, old = (
        filter_of(LOSS_PAGE, {"age": "younger-1"}, now_ms=now_ms),
        filter_of(LOSS_PAGE, {"age": "older-24"}, now_ms=now_ms),
    )
    assert (young.since_ms, young.before_ms) == (99 * 3_600_000, None)
    assert (old.since_ms, old.before_ms) == (None, 76 * 3_600_000)


@of_each_listing
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_empty_page_says_what_empty_means_and_what_proves_it(
    empty: WebServices, of: ListingPage, language: str
) -> None:
    page = page_of(empty, of.path, language)
    texts = catalogue_of(language).texts
    assert texts[f"listing.empties.{of.what}"] in re.sub(r"</?code>", "`", html.unescape(page))
    assert '<time datetime="' in page.partition('class="empty"')[2]


def test_an_empty_list_of_a_ledger_that_does_not_answer_proves_nothing(
    empty: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(empty.status), "get", lambda _reading: None)
    assert "an empty list proves nothing now" in page_of(empty, "/losses")


def test_a_search_that_finds_nothing_does_not_say_that_nothing_was_lost(empty: WebServices) -> None:
    page = page_of(empty, "/losses?topic=ORDERS")
    assert "No row fits this search" in page
    assert "No message was ever proved" not in page


@of_each_listing
def test_every_column_is_one_of_the_listing_and_has_a_name(of: ListingPage) -> None:
    assert set(of.columns) <= set(LISTINGS[of.what].names)
    fields, columns = FOUND_BY[of.what]
    assert (" ".join(of.fields), " ".join(of.columns)) == (fields, columns)
    texts = catalogue_of("en").texts
    for column in of.columns:
        assert f"column.{column.removesuffix('_ms').removesuffix('_at')}" in texts
    for field in of.fields:
        assert f"column.{field}" in texts


def test_every_word_that_a_row_can_have_has_a_text_and_no_text_is_left() -> None:
    texts = catalogue_of("en").texts
    wanted = {
        "choice.state": {*CandidateState, *RepairState},
        "choice.verdict": set(Verdict),
        "choice.loss": set(LOSSES),
        "choice.age": set(AGES),
        "choice.rung": set(Rung),
        "choice.reason": {
            word
            for table in (OUTAGE, QUARANTINE)
            for column in table.columns
            if column.name == "reason"
            for word in re.findall("[A-Z_]{4,}", column.doc)
        },
    }
    for family, words in wanted.items():
        found = {key.removeprefix(f"{family}.") for key in texts if key.startswith(f"{family}.")}
        assert found == set(map(str, words))


def test_what_is_away_stands_above_what_is_well_in_the_language_of_the_page(services: WebServices) -> None:
    page = page_of(services, "/health")
    assert page.index("Checks that failed: 1") < page.index("inbox of ") < page.index("roles of databases")
    chinese = page_of(services, "/health?part=findings", "zh")
    assert chinese.index("的收件箱") < chinese.index("数据库的角色") < chinese.index("主库")
    assert chinese.count('lang="en"') == 1, "only what somebody else said is left as it is"


def test_answers_of_repairs_are_told_in_the_language_of_the_page(services: WebServices) -> None:
    assert "dismissed by" in page_of(services, "/repairs")
    chinese = page_of(services, "/repairs", "zh")
    assert "核销" in chinese
    assert "dismissed by" not in chinese


def test_health_that_is_not_known_yet_is_not_told_as_well(
    services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(services.health), "get", lambda _reading: None)
    page = page_of(services, "/health?part=findings")
    assert "Every dependency is being asked" in page
    assert "No check failed" not in page


def test_the_page_of_brakes_names_the_topics_in_shadow_mode(empty: WebServices, tmp_path: Path) -> None:
    assert "Shadow mode" not in page_of(empty, "/brakes")
    services = services_of(settings_of(tmp_path, RECONCILER_REPAIRS__TOPICS__ORDERS="false"))
    with services.connections:
        assert "nothing is ever sent, for ORDERS." in page_of(services, "/brakes")


def test_a_topic_is_told_as_stopped_after_it_was_let_go_or_without_its_reason(empty: WebServices) -> None:
    environment, holds = empty.settings.environment, empty.connections.ledger.holds
    storm = TOO_MANY_SO_FAR(losses=1_300, verified=2_000, left_over=500, ceiling=1_000.0)
    for held, reason in ((HELD, HELD.reason), (OPEN, storm)):
        assert holds.place(environment, held.topic, held.kind, by=held.by, reason=reason)
    page = page_of(empty, "/brakes")
    assert "Held by a person" in page
    assert "The circuit breaker is open" in page
    assert (page.count("release"), page.count(said(storm))) == (1, 1)
    chinese = page_of(empty, "/brakes", "zh")
    assert (chinese.count("release"), chinese.count(said(storm, "zh"))) == (1, 1)
    assert "new losses" not in chinese
    for held in (HELD, OPEN):
        assert holds.lift(environment, held.topic, held.kind)
    assert "No topic is stopped" in page_of(empty, "/brakes")
