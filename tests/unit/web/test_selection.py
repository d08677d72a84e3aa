"""Many losses at once: who is offered to choose, what can be chosen, and what a repair of everything would take."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.web.acts.previewed import PREVIEWED_MAX
from reconciler.web.console.listings import LOSS_PAGE, REPAIR_PAGE, ROWS_A_PAGE, ListingPage, listing
from reconciler.web.exchange import WebRequest
from reconciler.web.roles import Visitor, WebRole
from reconciler.web.services import WebServices
from reconciler.words import LANGUAGES
from tests.unit.web.console_world import PREFIX, services_of, settings_of
from tests.unit.web.ledger_of_cases import NEWEST_MS

OPERATOR = Visitor(name="ann", role=WebRole.OPERATOR)
#: Number of the first row with this verdict (ledger_of_cases.py): each verdict has a row in each state.
LOST = list(Verdict).index(Verdict.LOST_CONFIRM) * len(CandidateState)


@pytest.fixture
def services(folder_of_cases: Path) -> Iterator[WebServices]:
    made = services_of(settings_of(folder_of_cases), clock=ManualClock(NEWEST_MS))
    with made.connections:
        yield made


def page_of(
    services: WebServices,
    query: str = "",
    *,
    of: ListingPage = LOSS_PAGE,
    visitor: Visitor = OPERATOR,
    language: str = "en",
) -> str:
    request = WebRequest(
        method="GET",
        path=of.path,
        headers={"accept-language": language},
        request_id="r-1",
        query=parse_qs(query),
        visitor=visitor,
    )
    return listing(of)(services, request).body.decode()


def rows_of(page: str) -> list[str]:
    return re.findall(r"<tr>\n(.*?)</tr>", page.partition("<tbody>")[2], re.DOTALL)


def chosen_by(row: str) -> str:
    """The key of the row's box; empty: it has none."""
    return "".join(re.findall(r'<input type="checkbox" name="keys" value="(\w+)" data-verdict="\w+" form="bulk">', row))


def form_of(page: str, button: str, *, act: str = "repairs") -> dict[str, str]:
    """Hidden fields of the form with this button, but for those of every form."""
    (form,) = [one for one in re.findall(r"<form.*?</form>", page, re.DOTALL) if f">{button}</button>" in one]
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    assert f'action="{PREFIX}/{act}" method="post"' in form
    return {name: html.unescape(value) for name, value in fields.items() if name not in ("csrf_token", "act_key")}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_row_that_no_repair_takes_can_be_chosen(services: WebServices, language: str) -> None:
    rows = rows_of(page_of(services, "loss=all", language=language))
    for row in rows:
        is_taken = ">RETIRED<" not in row and ">SETTLED<" not in row
        (key,) = re.findall(rf'href="{PREFIX}/messages/(\w+)"', row)
        assert chosen_by(row) == (key if is_taken else "")
    assert 10 < len(list(filter(chosen_by, rows))) < len(rows)


def test_boxes_are_offered_to_whom_they_refuse(services: WebServices, folder_of_cases: Path) -> None:
    read_only = services_of(
        settings_of(folder_of_cases, RECONCILER_WEB__READ_ONLY="true"), clock=ManualClock(NEWEST_MS)
    )
    with read_only.connections:
        admin = page_of(read_only, visitor=replace(OPERATOR, role=WebRole.ADMIN))
    viewer = page_of(services, visitor=replace(OPERATOR, role=WebRole.VIEWER))
    nobody = page_of(services, visitor=replace(OPERATOR, name=""))
    for page in (admin, viewer, nobody):
        assert "checkbox" not in page
    assert 'method="post"' not in admin
    assert "This needs the role operator." in viewer
    assert "sign in first" in nobody


def test_a_choice_acts_at_once_or_beyond_what_is_searched_for(services: WebServices) -> None:
    assert form_of(page_of(services), "Preview repair") == {"dry_run": "true"}
    searched = {"topic": "ORDERS", "group": "billing"}
    page = page_of(services, "topic=ORDERS&group=billing")
    assert form_of(page, "Preview repair") == {"dry_run": "true"} | searched
    assert form_of(page, "Preview all") == {"all": "true", "dry_run": "true"} | searched
    parked = form_of(page_of(services, "verdict=PARKED"), "Preview all")
    assert parked == {"all": "true", "dry_run": "true", "verdict": "PARKED"}


def test_chosen_messages_are_dismissed_together_after_a_preview(services: WebServices) -> None:
    page = page_of(services, "state=QUARANTINED&loss=all")
    bulk = page.partition('id="bulk"')[2].partition("</form>")[0]
    assert f'<button formaction="{PREFIX}/dismissals">Preview dismissal</button>' in bulk
    assert bulk.index("Preview repair") < bulk.index("Preview dismissal"), "Enter presses the first one"
    assert 'name="dry_run" value="true"' in bulk


def test_all_rows_of_one_verdict_are_chosen_by_one_press(services: WebServices) -> None:
    """Link, verdict, preview, act: four presses for the contradictions among all that waits for a person."""
    page = page_of(services, "state=QUARANTINED&loss=all")
    boxes = re.findall(r'name="keys" value="\w+" data-verdict="(\w+)"', page)
    offered = re.findall(r'data-choose="(\w+)".*?</span> (\d+)</label>', page)
    assert len(offered) > 1
    assert {verdict: int(number) for verdict, number in offered} == Counter(boxes)
    assert "data-choose" not in page_of(services, "state=QUARANTINED&loss=all&verdict=COLLISION")


def test_everything_that_waits_is_dismissed_after_a_preview(services: WebServices) -> None:
    query = "state=QUARANTINED&loss=all&verdict=COLLISION&topic=ORDERS"
    wanted = {"all": "true", "dry_run": "true", "topic": "ORDERS", "verdict": "COLLISION"}
    button = "Preview the dismissal of all"
    assert form_of(page_of(services, query), button, act="dismissals") == wanted
    for narrower in ("state=QUARANTINED", query + "&age=older-1"):
        assert button not in page_of(services, narrower)


def test_what_failed_is_tried_again_of_one_group_from_the_page_of_repairs(services: WebServices) -> None:
    page = page_of(services, "state=FAILED&topic=ORDERS", of=REPAIR_PAGE)
    wanted = {"all": "true", "failed": "true", "dry_run": "true", "topic": "ORDERS"}
    assert form_of(page, "Preview the retry") == wanted
    groups = re.findall(r"<option>(.*?)</option>", page.partition('id="retry-group"')[2].partition("</select>")[0])
    assert groups == sorted({one.group for one in services.settings.subscriptions if one.topic == "ORDERS"})
    assert groups


def test_the_repair_of_more_than_a_page_is_one_press_from_its_top(services: WebServices) -> None:
    page = page_of(services)
    assert page.index('href="#every"') < page.index("<table") < page.index('id="every"')


def test_the_bar_of_what_is_chosen_stays_within_the_rows(services: WebServices) -> None:
    box = page_of(services).partition('<div class="choosing">')[2].partition('<h2 id="every">')[0]
    assert box.index("<table") < box.index('class="bulk"')


@pytest.mark.parametrize(
    ("query", "is_whole"),
    [
        ("", True),
        ("state=OPEN", True),
        ("topic=ORDERS", True),
        ("state=QUARANTINED", False),
        ("verdict=PARKED", True),
        ("age=younger-72", False),
        ("loss=all", False),
        (f"name={LOST:032X}", False),
    ],
)
def test_a_repair_of_all_takes_more_than_the_search_has_shown(
    services: WebServices, query: str, is_whole: bool
) -> None:
    page = page_of(services, query)
    assert rows_of(page)
    assert ("Preview all" in page) is is_whole
    assert ("can be narrowed by topic, group and verdict only" in page) is not is_whole


def test_a_whole_page_is_more_than_one_preview_takes() -> None:
    assert ROWS_A_PAGE <= PREVIEWED_MAX


def test_no_other_listing_can_be_chosen_from(services: WebServices) -> None:
    assert "checkbox" not in page_of(services, of=REPAIR_PAGE)
