"""A thousand hostile rows in every table: each list of the API and of the console shows them, and obeys none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from reconciler.contract.tables import JobKind
from reconciler.contract.visible_text import visible_json
from reconciler.policy.ports import WantedJob
from reconciler.web.services import WebServices
from tests.unit.web.console_world import PREFIX, asked, services_of
from tests.unit.web.hostile_ledger import job_ids, make_hostile_world

NOW_MS = 1_800_000_000_000
LISTS = ("repairs", "outages", "quarantine", "actions", "jobs")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServices]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    settings = make_hostile_world(folder, now_ms=NOW_MS, RECONCILER_WEB__URL_PREFIX=PREFIX)
    found = services_of(settings)
    yield found
    found.connections.close()


@pytest.mark.parametrize("name", ["candidates", "rounds", "holds", *LISTS])
def test_a_hostile_row_is_escaped_in_a_document(services: WebServices, name: str) -> None:
    answer = asked(services, f"/api/v1/{name}")
    text = answer.body.decode()
    assert answer.status is HTTPStatus.OK, text[:300]
    assert visible_json(text.rstrip("\n")) == text.rstrip("\n"), "a character that cannot be seen is not escaped"
    assert len(json.loads(text)["items"]) > 0


@pytest.mark.parametrize("name", ["losses", *LISTS])
def test_a_hostile_row_is_text_on_a_page(services: WebServices, name: str) -> None:
    answer = asked(services, f"/{name}")
    page = answer.body.decode()
    assert answer.status is HTTPStatus.OK, page[:300]
    assert "&lt;" in page, "no row is shown"
    for obeyed in ("<script>alert", "<img src=x", "<svg/onload", "<iframe", "<base ", 'hx-get="//', "\x1b", "\u202e"):
        assert obeyed not in page


@pytest.mark.parametrize("state", tuple(job_ids()))
def test_a_hostile_job_has_a_page(services: WebServices, state: str) -> None:
    answer = asked(services, f"/jobs/{job_ids()[state]}")
    page = answer.body.decode()
    assert answer.status is HTTPStatus.OK, page[:300]
    assert "<script>alert" not in page


def test_a_job_whose_request_lost_its_members_has_a_page(services: WebServices) -> None:
    wanted = WantedJob(job_id="d" * 32, kind=JobKind.REPAIR, request={}, by="ada")
    services.connections.ledger.jobs.place(services.settings.environment, wanted)
    assert asked(services, f"/jobs/{wanted.job_id}").status is HTTPStatus.OK
