"""The console's forms: what they do once, to whom they are offered, and where they lead."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl

import pytest

from reconciler.clock import utc_text
from reconciler.commands.acts.jobs import cancel_job, find_job, place_rebuild, place_repair
from reconciler.commands.acts.repair import ManualRepairReport
from reconciler.commands.explain import Explanation
from reconciler.contract.tables import HoldKind, JobState
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.sql.tables import idempotency_key
from reconciler.telling.ports.actions import Intent
from reconciler.telling.ports.jobs import JobChange
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.web.acts import repairing
from reconciler.web.console import messages
from reconciler.web.console.listings import ROWS_A_PAGE
from reconciler.web.exchange import WebResponse
from reconciler.web.services import WebServices
from tests.unit.web.form_browser import HOSTILE, KEYS, Browser
from tests.unit.web.stories import story_of
from tests.unit.web.web_world import WebWorld


def actions(world: WebWorld) -> list[tuple[str, str]]:
    page = world.connections.ledger.reports.actions(world.settings.environment, only=LedgerFilter(), limit=100)
    return [(row.intent.by, row.intent.command) for row in reversed(page.rows)]


def location(answer: WebResponse) -> str:
    assert answer.status is HTTPStatus.SEE_OTHER, answer.body.decode()
    return answer.headers["Location"]


def test_a_reload_or_a_double_click_holds_twice(browser: Browser) -> None:
    form = {"topic": "ORDERS", "reason": "drill"}
    first, again = browser.post("/holds", form), browser.post("/holds", form)
    assert location(first) == location(again) == "/acts/hold/k1"
    assert actions(browser.world) == [("web:operator", "hold")]
    told = browser.get("/acts/{act}/{key}", act="hold", key="k1").body.decode()
    assert "Repairs of ORDERS are on hold." in told
    assert "web:operator" in told


def test_a_hold_with_an_end_tells_it_and_the_brakes_page_too(browser: Browser) -> None:
    browser.post("/holds", {"topic": "ORDERS", "reason": "drill", "for_seconds": "7200"})
    (held,) = browser.world.connections.ledger.reports.holds(browser.world.settings.environment)
    assert held.until_ms is not None
    moment = f'<time datetime="{utc_text(held.until_ms)}"'
    told = browser.get("/acts/{act}/{key}", act="hold", key="k1").body.decode()
    assert "They go on by themselves after" in told
    assert moment in told
    assert moment in browser.get("/brakes").body.decode()
    refused = browser.post("/holds", {"topic": "ORDERS", "for_seconds": "x"}, key="k2")
    assert refused.status is HTTPStatus.UNPROCESSABLE_ENTITY


@pytest.mark.parametrize(
    ("who", "found"),
    [
        ("olga", {"olga", "web:olga", "operator olga"}),
        ("web:olga", {"web:olga"}),
        ("operator olga", {"operator olga"}),
        ("olg", set()),
        ("OLGA%", set()),
    ],
)
def test_what_a_person_did_in_the_console_is_hidden_from_who_types_the_bare_name(
    browser: Browser, who: str, found: set[str]
) -> None:
    connections, environment = browser.world.connections, browser.world.settings.environment
    everybody = {"olga", "web:olga", "operator olga", "web:web:olga", "adam"}
    for by in everybody:
        connections.ledger.actions.begin(environment, Intent(by=by, command="hold", topic="ORDERS"))
        place_repair(connections, KEYS[:1], topic=None, group=None, reason="", by=by)
    for path in ("/actions", "/jobs"):
        page = browser.get(path, query={"by": [who]}).body.decode()
        assert {by for by in everybody if f"<bdi>{by}</bdi>" in page} == found, path


def test_who_takes_an_incident_is_led_back_to_it(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebServices, "newest_status", lambda _: SimpleNamespace(lost=1))
    assert location(browser.post("/acknowledgements", {"seen_ms": "1700000000000"})) == "/"
    assert actions(browser.world) == [("web:operator", "acknowledge")]
    assert browser.post("/acknowledgements", {"seen_ms": "x"}, key="k2").status is HTTPStatus.UNPROCESSABLE_ENTITY


def test_an_act_without_a_key_of_its_form_is_done(browser: Browser) -> None:
    assert browser.post("/holds", {"topic": "ORDERS"}, key="").status is HTTPStatus.BAD_REQUEST
    assert actions(browser.world) == []


def test_what_came_of_an_act_is_told_to_somebody_else(browser: Browser) -> None:
    browser.post("/holds", {"topic": "ORDERS", "reason": "drill"})
    other = Browser(browser.world, "admin")
    assert other.get("/acts/{act}/{key}", act="hold", key="k1").status is HTTPStatus.NOT_FOUND
    assert browser.get("/acts/{act}/{key}", act="lift", key="k1").status is HTTPStatus.NOT_FOUND
    assert browser.get("/acts/{act}/{key}", act="nothing", key="k1").status is HTTPStatus.NOT_FOUND


def test_a_second_click_while_the_first_is_under_way_ends_in_an_error(browser: Browser) -> None:
    browser.post("/holds", {"topic": "ORDERS", "reason": "drill"})
    with browser.world.connections.ledger.database.writing() as connection:
        connection.execute(
            idempotency_key.update().values(state="UNDER_WAY", token="t", lease_until_ms=2**50, answer=None)
        )
    assert location(browser.post("/holds", {"topic": "ORDERS", "reason": "drill"})) == "/acts/hold/k1"
    waiting = browser.get("/acts/{act}/{key}", act="hold", key="k1")
    assert "being done" in waiting.body.decode()
    assert waiting.headers["Refresh"] == "2", "it looks again without a script"


def test_an_operator_closes_the_breaker_by_a_form(browser: Browser) -> None:
    holds, environment = browser.world.connections.ledger.holds, browser.world.settings.environment
    holds.place(environment, "ORDERS", HoldKind.BREAKER, by="run", reason="many")
    refused = browser.post("/holds/{topic}/lift", {"breaker": "true"}, topic="ORDERS")
    assert refused.status is HTTPStatus.FORBIDDEN
    assert location(browser.post("/holds/{topic}/lift", {}, topic="ORDERS", key="k2")) == "/acts/lift/k2"
    told = browser.get("/acts/{act}/{key}", act="lift", key="k2").body.decode()
    assert "still stopped: BREAKER" in told
    admin = Browser(browser.world, "admin")
    admin.post("/holds/{topic}/lift", {"breaker": "true"}, topic="ORDERS")
    assert holds.active(environment) == {}


def test_many_messages_are_repaired_by_one_click(browser: Browser) -> None:
    for count, typed, status in ((20, "", 303), (21, "", 422), (21, "20", 422), (21, " 21 ", 303)):
        form = {"keys": KEYS[:count], "confirmation": typed}
        assert browser.post("/repairs", form, key=f"{count}-{typed.strip()}").status == status
    for number, typed, status in (("21", "", 422), ("", "", 422), ("21", "21", 409)):
        form = {"all": "true", "number": number, "confirmation": typed}
        assert browser.post("/repairs", form, key=f"all-{number}-{typed}").status == status
    form = {"all": "true", "seen": [f"{key}=ab" for key in KEYS[:21]], "number": "1", "confirmation": "1"}
    assert browser.post("/repairs", form, key="seen").status == 422, "so many are 21, whatever the form says"
    assert actions(browser.world) == 2 * [("web:operator", "job")]


def test_a_choice_that_is_corrected_after_its_preview_is_taken_for_the_first_one(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    previewed: list[Sequence[str]] = []

    def repair_now(_connections: object, names: Sequence[str], **_more: object) -> ManualRepairReport:
        previewed.append(names)
        return ManualRepairReport(keys=(), dry_run=True)

    monkeypatch.setattr(repairing, "repair_now", repair_now)
    sent = [{"keys": KEYS[:count], "dry_run": "true"} for count in (2, 2, 1)]
    first, again, corrected = [location(browser.post("/repairs", form)) for form in sent]
    assert first == again != corrected
    assert previewed == [KEYS[:2], KEYS[:1]]


@pytest.mark.parametrize("keys", [[], KEYS[:101]], ids=["nothing", "too many"])
def test_a_preview_of_nothing_or_of_too_many_is_refused_as_a_fault(browser: Browser, keys: Sequence[str]) -> None:
    refused = browser.post("/repairs", {"keys": keys, "dry_run": "true"})
    assert refused.status is HTTPStatus.UNPROCESSABLE_ENTITY
    assert "100 keys at most" in refused.body.decode() if keys else "name messages" in refused.body.decode()


def test_a_bulk_repair_leads_to_its_job_however_often_it_is_sent(browser: Browser) -> None:
    form = {"keys": KEYS[:6], "reason": HOSTILE}
    first, again = location(browser.post("/repairs", form)), location(browser.post("/repairs", form))
    job_id = first.removeprefix("/jobs/")
    assert first == again
    assert find_job(browser.world.connections, job_id).by == "web:operator"
    shown = browser.get("/jobs/{job_id}", job_id=job_id).body.decode()
    assert "waiting" in shown
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u{202E}" in shown
    assert location(browser.post("/jobs/{job_id}/cancel", {}, job_id=job_id)) == first
    assert find_job(browser.world.connections, job_id).state is JobState.CANCELLED
    assert job_id in browser.get("/jobs").body.decode()
    assert browser.get("/jobs/{job_id}", job_id="0" * 32).status is HTTPStatus.NOT_FOUND


def test_an_older_job_is_on_no_page_or_a_search_shows_another(browser: Browser) -> None:
    connections, many = browser.world.connections, ROWS_A_PAGE + 10
    placed = [place_repair(connections, KEYS[:6], topic=None, group=None, reason="", by="anna") for _ in range(many)]
    cancel_job(connections, placed[0].job_id, by="anna")

    def shown(**query: str) -> tuple[set[str], str]:
        told = browser.get("/jobs", query={name: [value] for name, value in query.items()}).body.decode()
        following = re.search(r'href="/jobs\?([^"]+)" rel="next"', told)
        return set(re.findall(r'href="/jobs/(\w{32})"', told)), html.unescape(following[1]) if following else ""

    first, following = shown(by="anna", state="QUEUED")
    assert "by=anna" in following
    rest, end = shown(**dict(parse_qsl(following)))
    assert (len(first), len(rest), end) == (ROWS_A_PAGE, many - 1 - ROWS_A_PAGE, "")
    assert first | rest == {job.job_id for job in placed[1:]}
    assert shown(state="CANCELLED") == ({placed[0].job_id}, "")
    assert shown(by="ben") == shown(age="older-1") == (set(), "")
    for name, value in (("state", "OPEN"), ("age", "ever"), ("cursor", "x")):
        assert browser.get("/jobs", query={name: [value]}).status is HTTPStatus.UNPROCESSABLE_ENTITY


def test_progress_is_asked_for_after_the_end_or_not_before(browser: Browser) -> None:
    connections = browser.world.connections
    job = place_repair(connections, KEYS[:6], topic=None, group=None, reason="", by="anna")
    claimed = connections.ledger.jobs.claim(browser.world.settings.environment, token="t", lease_seconds=60)
    assert claimed is not None
    line = {"unique_key": KEYS[0], "outcome": "failed", "reason": HOSTILE}  # as of another release: fields are missing
    change = JobChange(done=3, total=6, counts={"sent": 2, "failed": 1}, lines=[line])
    connections.ledger.jobs.change(claimed, change, lease_seconds=60)
    part = browser.get("/jobs/{job_id}", query={"part": ["progress"]}, job_id=job.job_id).body.decode()
    assert "3 of 6 messages" in part
    assert "What is sent has not arrived yet." in part
    assert 'href="/repairs?state=SENT"' in part
    assert f'hx-get="/jobs/{job.job_id}?part=progress"' in part
    assert "<html" not in part
    assert "<script>alert" not in part
    whole = browser.get("/jobs/{job_id}", job_id=job.job_id).body.decode()
    assert "htmx.min.js" in whole
    assert "Cancel this job" in whole
    connections.ledger.jobs.change(claimed, JobChange(ends=JobState.DONE), lease_seconds=60)
    ended = browser.get("/jobs/{job_id}", job_id=job.job_id).body.decode()
    assert "part=progress" not in ended
    names = f'hx-get="/names?keys={KEYS[0]}"'
    assert (names in part, names in ended) == (False, True), "business ids are asked for once, at the end"
    assert f"name-{KEYS[0]}" in ended
    assert "Cancel this job" not in ended
    part = browser.get("/jobs/{job_id}", query={"part": ["progress"]}, job_id=job.job_id).body.decode()
    assert '<div id="cancel" hx-swap-oob="delete">' in part, "the button goes with the job"
    assert '<div id="cancel">' in whole


def ended_job(browser: Browser, kind: str, ends: JobState, *, lines: Sequence[str] = ()) -> str:
    """The page of a job that was asked for and has ended, with lines of these keys that did not end well."""
    connections, environment = browser.world.connections, browser.world.settings.environment
    match kind:
        case "rebuild":
            job = place_rebuild(connections, since_ms=1_699_954_230_000, reason="drill", by="anna")
        case "named":
            job = place_repair(connections, KEYS[:6], topic="ORDERS", group=None, reason="", by="anna")
        case _:
            job = place_repair(connections, [], topic="ORDERS", group=None, reason="", by="anna")
    claimed = connections.ledger.jobs.claim(environment, token="t", lease_seconds=60)
    assert claimed is not None
    told = [{"unique_key": key, "outcome": "failed", "reason": ""} for key in lines]
    connections.ledger.jobs.change(claimed, JobChange(ends=ends, lines=told), lease_seconds=60)
    return browser.get("/jobs/{job_id}", job_id=job.job_id).body.decode()


@pytest.mark.parametrize(
    ("kind", "ends", "lines", "expected"),
    [
        ("named", JobState.DONE, [], None),
        ("named", JobState.DONE, [KEYS[2], KEYS[2], "no key"], [("keys", KEYS[2])]),
        ("named", JobState.FAILED, [KEYS[2]], [("keys", key) for key in KEYS[:6]]),
        ("named", JobState.CANCELLED, [], [("keys", key) for key in KEYS[:6]]),
        ("every", JobState.FAILED, [], [("all", "true")]),
        ("every", JobState.DONE, [KEYS[2]], [("keys", KEYS[2])]),
        ("every", JobState.DONE, KEYS[:101], None),
    ],
)
def test_a_repair_job_that_left_messages_leads_to_a_preview_of_them(
    browser: Browser, kind: str, ends: JobState, lines: Sequence[str], expected: Sequence[tuple[str, str]] | None
) -> None:
    told = ended_job(browser, kind, ends, lines=lines)
    form = re.search(r'<form class="act" action="/repairs".*?</form>', told, re.DOTALL)
    assert (form is None) == (expected is None)
    if form is not None:
        hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form[0])
        fields = [one for one in hidden if one[0] not in ("csrf_token", "act_key")]
        assert fields == [("dry_run", "true"), *(expected or ()), ("topic", "ORDERS")]
    leads_to_losses = 'href="/losses?topic=ORDERS&amp;state=OPEN"' in told
    assert leads_to_losses == (form is None and bool(lines)), "more than one preview takes"


@pytest.mark.parametrize("ends", [JobState.DONE, JobState.FAILED])
def test_a_rebuild_that_failed_is_asked_for_again_with_its_time_and_reason(browser: Browser, ends: JobState) -> None:
    told = ended_job(Browser(browser.world, "admin"), "rebuild", ends)
    is_offered = ends is JobState.FAILED
    assert ('action="/rebuilds"' in told, 'value="2023-11-14T09:30"' in told) == (is_offered, is_offered)
    assert ('autocomplete="off" value="drill" required' in told) == is_offered


def test_the_first_page_goes_on_telling_what_was_before_an_act(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    outdated: list[object] = []
    monkeypatch.setattr(LatestReading, "outdate", lambda reading: outdated.append(reading))
    assert browser.post("/holds", {"topic": "ORDERS", "reason": "release"}).status is HTTPStatus.SEE_OTHER
    assert outdated == [browser.world.services.status]


def test_a_rebuild_begins_by_one_click_or_without_an_admin(browser: Browser) -> None:
    form = {"since": "2023-11-14T09:30", "confirmation": "rebuild", "reason": "drill"}
    assert browser.post("/rebuilds", form).status is HTTPStatus.FORBIDDEN
    admin = Browser(browser.world, "admin")
    assert admin.post("/rebuilds", {**form, "confirmation": "yes"}).status is HTTPStatus.UNPROCESSABLE_ENTITY
    assert admin.post("/rebuilds", {**form, "since": "yesterday"}).status is HTTPStatus.UNPROCESSABLE_ENTITY
    job_id = location(admin.post("/rebuilds", form)).removeprefix("/jobs/")
    assert find_job(browser.world.connections, job_id).request == {"since_ms": 1_699_954_200_000, "reason": "drill"}


def offered(browser: Browser) -> str:
    """What the page of one message offers to do with it."""
    told = browser.get("/messages/{name:path}", name=KEYS[0]).body.decode()
    (acts,) = re.findall(r'<section class="acts".*?</section>', told, re.DOTALL)
    return str(acts)


def test_a_button_is_offered_to_whom_it_refuses(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = browser.world
    found = Explanation(stories=(story_of(KEYS[0]),))
    monkeypatch.setattr(messages, "life_stories", lambda _connections, _name: found)
    viewer = offered(Browser(world, "viewer"))
    assert viewer.count("<button") == viewer.count(" disabled") == 7
    assert "<form" not in viewer
    assert viewer.count("This needs the role operator.") == 1
    operator = offered(browser)
    assert (operator.count("<button"), operator.count(" disabled")) == (8, 0)
    keys = re.findall(r'name="act_key" value="(\w{32})"', operator)
    assert len(set(keys)) == 8
    assert operator.count('name="csrf_token" value="') == 8
    with_users = WebWorld(tmp_path, users_file=str(world.users_file), read_only="true")
    read_only = offered(Browser(with_users, "admin"))
    assert "<form" not in read_only
    assert "This console changes nothing" in read_only


def test_who_must_give_a_reason_learns_it_from_a_refusal(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Explanation(stories=(story_of(KEYS[0]),))
    monkeypatch.setattr(messages, "life_stories", lambda _connections, _name: found)
    forms = re.findall(r'<form class="act".*?</form>', offered(browser), re.DOTALL)
    marked = {
        re.findall(r"<button[^>]*>([^<]+)<", form)[0]: (
            " required>" in form,
            "(required)" in form,
            "(optional)" in form,
        )
        for form in forms
        if 'name="reason"' in form
    }
    needed, free = (True, True, False), (False, False, True)
    topic = "Hold ORDERS"
    assert marked == {"Repair": free, "Dismiss": needed, topic: needed, "Open the body": needed}
    heard = re.findall(r'<label for="[^"]+">(Reason.*?)</span>', "".join(forms))
    named = ("Repair", "Dismiss", topic, "Open the body")
    assert [re.sub("<[^>]+>", "", one) for one in heard] == [f"Reason: {act}" for act in named]
