"""A thousand hostile rows in every table: each page and each answer of the API shows them, bounded, and obeys none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.contract.tables import JobKind
from reconciler.contract.visible_text import visible_json
from reconciler.telling.ports.jobs import WantedJob
from reconciler.web.excerpts import TEXT_CHARACTERS_MAX
from reconciler.web.exchange import HTML, JSON, WebResponse
from reconciler.web.problems import PROBLEM_JSON
from reconciler.web.roles import WebRole
from reconciler.web.route import Surface
from reconciler.web.routes import ROUTES
from reconciler.web.services import WebServices
from tests.unit.web.audit_cases import HOSTILE_AUDITS, known_shelf
from tests.unit.web.console_world import PREFIX, asked, route_of, services_of
from tests.unit.web.hostile_ledger import ADMIN, ROWS, make_hostile_world
from tests.unit.web.sample_addresses import PLACES, addresses, addresses_of
from tests.unit.web.web_world import with_token

PAGED = ("candidates", "repairs", "rounds", "outages", "quarantine", "actions", "jobs")
#: A page of the console has 100 rows at most, each with some texts of 2,000 characters.
PAGE_BYTES_MAX = 512_000
#: Some answers have all 1,000 rows.
ANSWER_BYTES_MAX = 2_000_000
OBEYED = ("<script>alert", "<img src=x", "<svg/onload", "<iframe", "<base ", 'hx-get="//', "\x1b", "\u202e", "\x00")


def _short(address: str) -> str:
    return address[:40]


#: What is asked by an operator is answered.
Ask = Callable[[str], WebResponse]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def token(folder: Path) -> str:
    return with_token(folder / "users.json", ADMIN, WebRole.OPERATOR, expires_at_ms=SystemClock().now_ms() + 3_600_000)


@pytest.fixture(scope="module")
def services(folder: Path, token: str) -> Iterator[WebServices]:
    assert token
    variables = {"RECONCILER_WEB__URL_PREFIX": PREFIX, "RECONCILER_WEB__USERS_FILE": str(folder / "users.json")}
    clock = SystemClock()  # what is read behind a page is waited for
    settings = make_hostile_world(folder, now_ms=clock.now_ms(), **variables)
    found = replace(services_of(settings, clock=clock), audits=known_shelf(folder, HOSTILE_AUDITS))
    yield found
    found.connections.close()


@pytest.fixture(scope="module")
def ask(services: WebServices, token: str) -> Ask:
    return partial(asked, services, token=token)


def test_a_new_route_is_asked_for_nothing_hostile() -> None:
    read = {route.path: route for route in ROUTES if route.method == "GET"}
    assert {path for path in read if "{" in path} == set(PLACES)
    for path, route in read.items():
        assert {route_of(address.partition("?")[0])[0].path for address in addresses_of(route)} == {path}


@pytest.mark.parametrize("address", addresses(Surface.API), ids=_short)
def test_a_hostile_row_is_obeyed_or_has_no_bound_in_a_document(ask: Ask, address: str) -> None:
    answer = ask(address)
    assert answer.status.value < 500 or address == "/readyz", answer.body[:300]
    assert len(answer.body) <= ANSWER_BYTES_MAX
    text = answer.body.decode().rstrip("\n")
    if address == "/metrics":
        assert visible_json(text) == text
        return
    assert answer.content_type in (JSON, PROBLEM_JSON)
    assert visible_json(text) == text, "a character that cannot be seen is not escaped"
    assert longest_text(json.loads(text)) <= TEXT_CHARACTERS_MAX + 30


def longest_text(document: object) -> int:
    """Names of members count, too."""
    match document:
        case str():
            return len(document)
        case dict():
            return max(map(longest_text, (*document, *document.values())), default=0)
        case list():
            return max(map(longest_text, document), default=0)
    return 0


@pytest.mark.parametrize("address", addresses(Surface.PAGE), ids=_short)
def test_a_hostile_row_is_obeyed_or_has_no_bound_on_a_page(ask: Ask, address: str) -> None:
    answer = ask(address)
    assert answer.status.value < 500, answer.body[-300:]
    assert answer.status is not HTTPStatus.FORBIDDEN
    assert "/login" not in answer.headers.get("Location", "")
    assert len(answer.body) <= PAGE_BYTES_MAX
    page = answer.body.decode()
    assert not [obeyed for obeyed in OBEYED if obeyed in page]


@pytest.mark.parametrize(
    "name", ["losses", "rounds", "repairs", "outages", "quarantine", "actions", "jobs", "brakes", "audits"]
)
def test_a_page_that_shows_no_hostile_row_proves_nothing(ask: Ask, name: str) -> None:
    answer = ask(f"/{name}")
    assert answer.content_type == HTML
    assert b"&lt;" in answer.body


@pytest.mark.parametrize("name", PAGED)
def test_a_cursor_behind_a_hostile_row_is_refused(ask: Ask, name: str) -> None:
    count = 0
    cursor: str | None = ""
    while cursor is not None:
        answer = ask(f"/api/v1/{name}?limit=90&cursor={cursor}")
        assert answer.status is HTTPStatus.OK, answer.body
        found = json.loads(answer.body)
        count, cursor = count + len(found["items"]), found["next_cursor"]
    assert count == ROWS


def test_a_job_whose_request_lost_its_members_has_a_page(services: WebServices, ask: Ask) -> None:
    wanted = WantedJob(job_id="d" * 32, kind=JobKind.REPAIR, request={}, by="ada")
    services.connections.ledger.jobs.place(services.settings.environment, wanted)
    assert ask(f"/jobs/{wanted.job_id}").status is HTTPStatus.OK
