"""The console's forms: what they do once, to whom they are offered, and where they lead."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from reconciler.clock import utc_text
from reconciler.commands.dismissed_halves import HalfLine
from reconciler.commands.explain import Explanation
from reconciler.commands.jobs import cancel_job, find_job, place_rebuild, place_repair
from reconciler.commands.repair import ManualRepairReport, RepairLine, digest_of
from reconciler.contract.kept_facts import ANSWERED_WITH
from reconciler.contract.outcomes import HELD_FIRST, JUDGED_FIRST, NOT_LOOKED_AT
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, HoldKind, JobState
from reconciler.contract.verdicts import Verdict
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.policy.open_halves import HalfState
from reconciler.policy.ports.actions import Intent
from reconciler.policy.ports.idempotency import KeyedRequest
from reconciler.policy.ports.jobs import JobChange
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.policy.ports.paging import LedgerFilter
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import idempotency_key, ledger_metadata
from reconciler.web.acts import repairing
from reconciler.web.acts.act import WebAct
from reconciler.web.acts.once import kept_key
from reconciler.web.acts.repairing import DISMISS, REPAIR
from reconciler.web.application import answer_of
from reconciler.web.console import messages
from reconciler.web.console.listings import ROWS_A_PAGE
from reconciler.web.exchange import FORM, WebRequest, WebResponse
from reconciler.web.routes import ROUTES
from reconciler.web.services import WebServices
from tests.unit.web.stories import story_of
from tests.unit.web.web_world import HOST, WebWorld, with_three_users

KEYS = [f"{number:032X}" for number in range(120)]
HOSTILE = "<script>alert(1)</script>\u202e"
Form = Mapping[str, str | Sequence[str]]


class Browser:
    """One person's: it has a session, and sends what forms of its pages hold."""

    def __init__(self, world: WebWorld, name: str) -> None:
        self.world = world
        self.cookie = world.cookie_of(name)
        self.token = world.csrf_token(self.cookie)
        self.language = "en"

    def post(self, path: str, form: Form, *, key: str = "k1", **parts: str) -> WebResponse:
        """`path` as in the table of routes."""
        sent = {"act_key": key, "csrf_token": self.token, **form}
        body = urlencode({name: value for name, value in sent.items() if value}, doseq=True).encode()
        return self._ask("POST", path, {"content-type": FORM, "sec-fetch-site": "same-origin"}, body, parts)

    def get(self, path: str, *, query: Mapping[str, Sequence[str]] | None = None, **parts: str) -> WebResponse:
        return self._ask("GET", path, {}, b"", parts, query)

    def _ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        parts: dict[str, str],
        query: Mapping[str, Sequence[str]] | None = None,
    ) -> WebResponse:
        (route,) = [route for route in ROUTES if (route.path, route.method) == (path, method)]
        request = WebRequest(
            method=method,
            path=path.replace(":path}", "}").format(**parts),
            headers={"host": HOST, "accept-language": self.language} | headers,
            request_id="r1",
            peer="127.0.0.1",
            parts=parts,
            query=query or {},
            cookies={self.world.services.access.visitors.cookie.name: self.cookie},
            body=body,
        )
        return answer_of(self.world.services, route, request)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[WebWorld]:
    engine = open_engine(f"sqlite:///{tmp_path}/none.db")
    ledger_metadata.create_all(engine)
    engine.dispose()
    found = WebWorld(tmp_path, users_file=str(with_three_users(tmp_path)))
    with found.connections:
        yield found


@pytest.fixture
def browser(world: WebWorld) -> Browser:
    return Browser(world, "operator")


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
    world: WebWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Explanation(stories=(story_of(KEYS[0]),))
    monkeypatch.setattr(messages, "life_stories", lambda _connections, _name: found)
    viewer = offered(Browser(world, "viewer"))
    assert viewer.count("<button") == viewer.count(" disabled") == 7
    assert "<form" not in viewer
    assert viewer.count("This needs the role operator.") == 1
    operator = offered(Browser(world, "operator"))
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


def keep(browser: Browser, act: WebAct[Any], document: Mapping[str, object]) -> None:
    """As if it had been done under the key k1."""
    keys, environment = browser.world.connections.ledger.idempotency_keys, browser.world.settings.environment
    request = KeyedRequest(by="web:operator", key=kept_key(act, "k1"), digest=b"1" * 32)
    begun = keys.begin(environment, request, lease_seconds=9)
    assert keys.answer(environment, request, token=begun.token, status=200, answer=json.dumps(document))


def previewed(count: int, *, all_open: bool = False, lines: int | None = None) -> dict[str, object]:
    """What a dry run of messages says that are lost for two groups."""
    found = [
        {
            "topic": "ORDERS",
            "group": group,
            "unique_key": key,
            "verdict": "LOST_CONFIRM",
            "outcome": "held" if group == "billing" else "planned",
            "rung": "END",
            "reason": HOSTILE,
        }
        for group in ("billing", "shipping")
        for key in KEYS[:count]
    ]
    chosen = {"all": all_open, "topic": "ORDERS" if all_open else None, "group": None}
    return {"dry_run": True, "keys": found, "notes": [], "chosen": chosen, "lines": lines or len(found), "exit_code": 4}


def test_what_was_looked_at_is_not_what_is_repaired(browser: Browser) -> None:
    keep(browser, REPAIR, previewed(2) | {"seen": {KEYS[0]: "ab12"}})
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "What a repair would do" in told
    assert "On record" not in told, "a dry run is none"
    assert (told.count("held by a brake"), told.count("would be sent")) == (2, 2)
    assert told.count("What holds it, and who may end that</a>") == 2
    assert "Messages: 2 in 4 lines, one a group" in told
    assert "Messages to repair: 2." in told
    assert "<script>alert" not in told
    confirming = told[told.index('action="/repairs"') :]
    assert re.findall(r'name="keys" value="(\w+)"', confirming) == KEYS[:2], "each message once"
    assert re.findall(r'name="seen" value="([^"]+)"', confirming) == [f"{KEYS[0]}=ab12"]
    assert "confirmation" not in confirming
    assert "dry_run" not in confirming
    assert f'href="/messages/{KEYS[0]}"' in told


def test_a_bulk_is_confirmed_without_its_number_or_offered_to_who_may_not(browser: Browser) -> None:
    keep(browser, REPAIR, previewed(21))
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "Type 21 to confirm" in told
    assert " disabled" not in told


def test_all_open_losses_are_repaired_of_another_topic_than_was_looked_at(browser: Browser) -> None:
    seen = {f"{number:032X}": "ab12" for number in range(3000)}
    keep(browser, REPAIR, previewed(50, all_open=True, lines=3100) | {"seen": seen, "digest": digest_of(seen)})
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    confirming = told[told.index('action="/repairs"') :]
    for hidden in ('name="all" value="true"', 'name="number" value="3000"', 'name="topic" value="ORDERS"'):
        assert hidden in confirming
    assert "Type 3000 to confirm" in confirming
    assert f'name="digest" value="{digest_of(seen)}"' in confirming
    assert dict(re.findall(r'name="seen" value="(\w+)=(\w+)"', confirming)) == seen
    assert 'name="keys"' not in confirming
    assert " disabled" in confirming, "so many need an admin"
    assert "This needs the role admin." in confirming


def test_all_of_a_preview_that_shows_all_are_those_that_it_shows(browser: Browser) -> None:
    shown = previewed(2, all_open=True) | {"seen": {KEYS[0]: "ab12"}}
    shown["chosen"] = {"all": True, "topic": "ORDERS", "group": None, "verdict": "LOST_CONFIRM"}
    keep(browser, REPAIR, shown)
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    confirming = told[told.index('action="/repairs"') :]
    assert re.findall(r'name="(all|verdict|topic|keys|seen)" value="([^"]+)"', confirming) == [
        *(("keys", KEYS[0]), ("seen", f"{KEYS[0]}=ab12"), ("keys", KEYS[1]), ("topic", "ORDERS")),
    ]


def test_a_repair_that_was_sent_is_taken_for_one_that_arrived(browser: Browser) -> None:
    of = {"topic": "ORDERS", "group": "billing", "unique_key": KEYS[0], "verdict": "LOST_CONFIRM"}
    sent = of | {"outcome": "sent", "rung": "END", "reason": "DONE 0"}
    done = of | {"outcome": "done", "rung": "END", "reason": "every inbox has it"}
    keep(browser, REPAIR, previewed(1) | {"dry_run": False, "keys": [sent, done]})
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "What is sent has not arrived yet." in told
    assert 'href="/repairs?state=SENT"' in told
    assert told.count("its effect is awaited. Answer: ") == 1
    assert ">took effect already<" in told
    assert 'href="/actions"' in told[told.index("On record as web:operator") :]


def test_a_finished_repair_offers_to_be_done_again(browser: Browser) -> None:
    document = previewed(1) | {"dry_run": False}
    keep(browser, REPAIR, document)
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "What came of the repair" in told
    assert "On record as web:operator" in told
    assert 'action="/repairs"' not in told


def dismissal(half: Mapping[str, object], *, dry_run: bool) -> dict[str, object]:
    """What a dismissal of one message says, or its dry run."""
    line = {"topic": "ORDERS", "group": "billing", "unique_key": KEYS[0], "outcome": "dismissed"}
    told = {"topic": "ORDERS", "unique_key": KEYS[0], "told": f"its half is {HOSTILE}", "until": None} | dict(half)
    chosen = {"topic": None, "group": "billing"}
    return {
        "keys": [line],
        "dry_run": dry_run,
        "halves": [told],
        "seen": {KEYS[0]: "ab12"},
        "chosen": chosen,
        "exit_code": 0,
    }


@pytest.mark.parametrize("can_be_closed", [True, False])
def test_the_preview_of_a_dismissal_offers_to_close_a_half_where_it_may(browser: Browser, can_be_closed: bool) -> None:
    half = {"state": "open", "can_be_closed": can_be_closed, "closed": False}
    keep(browser, DISMISS, dismissal(half, dry_run=True))
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "What a dismissal would do" in told
    assert "On record" not in told
    assert "its half is " in told
    assert "<script>alert" not in told
    confirming = told[told.index('action="/dismissals"') :]
    assert re.findall(r'name="(?:keys|seen|group)" value="([^"]+)"', confirming) == [
        KEYS[0],
        f"{KEYS[0]}=ab12",
        "billing",
    ]
    assert ('name="roll_back_half"' in confirming) == can_be_closed
    assert "dry_run" not in confirming


def test_what_came_of_a_dismissal_is_told_in_the_language_of_the_page(browser: Browser) -> None:
    half = HalfLine(topic="ORDERS", unique_key=KEYS[0], state=HalfState.NONE, told=NOT_LOOKED_AT(error=HOSTILE))
    kept = dismissal(half.as_dict(), dry_run=True)
    keep(browser, DISMISS, kept)
    browser.language = "zh"
    page = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "没有查询它的半消息" in page
    assert ("将会核销" in page, "已核销" in page) == (True, False), "a preview dismisses nothing"
    assert "its half was not looked at" not in page
    assert ">dismissed" not in page
    assert "<script>alert" not in page


def test_what_came_of_repairs_is_told_in_the_language_of_the_page(browser: Browser) -> None:
    line = RepairLine(
        topic="ORDERS",
        group="billing",
        unique_key=KEYS[0],
        verdict="LOST_CONFIRM",
        outcome="held",
        rung="end",
        reason=HELD_FIRST(by=("HOLD",), then=ANSWERED_WITH(outcome="NO_ANSWER", said=HOSTILE)),
    )
    report = ManualRepairReport(keys=(line,), dry_run=True, notes=(JUDGED_FIRST(judged=1, lines=7),), lines=7)
    chosen = {"all": True, "topic": None, "group": None, "verdict": None}
    keep(browser, REPAIR, report.as_dict() | {"chosen": chosen, "lines": 7})
    connections = browser.world.connections
    job = place_repair(connections, KEYS[:6], topic=None, group=None, reason="", by="anna")
    claimed = connections.ledger.jobs.claim(browser.world.settings.environment, token="t", lease_seconds=60)
    assert claimed is not None
    connections.ledger.jobs.change(claimed, JobChange(done=1, total=6, lines=[line.as_dict()]), lease_seconds=60)
    browser.language = "zh"
    outcome = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "7 个中的前 1 个" in outcome
    for page in (outcome, browser.get("/jobs/{job_id}", job_id=job.job_id).body.decode()):
        assert "已暂停" in page
        assert "held: " not in page
        assert "<script>alert" not in page


def test_a_preview_of_what_has_its_effect_says_so_and_offers_no_dismissal(browser: Browser) -> None:
    document = dismissal({"state": "committed", "can_be_closed": False, "closed": False}, dry_run=True)
    line = {"topic": "ORDERS", "group": "billing", "unique_key": KEYS[0], "outcome": "has its effect"}
    keep(browser, DISMISS, document | {"keys": [line | {"told": f"it took effect {HOSTILE}"}], "exit_code": 5})
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "has its effect: it took effect" in told
    assert "<script>alert" not in told
    assert 'action="/dismissals"' not in told


def test_a_dismissal_of_what_has_changed_leads_back_to_the_message(browser: Browser) -> None:
    of = Subscription(environment=browser.world.settings.environment, topic="ORDERS", group="billing")
    given_up = VerdictEntry(
        unique_key=KEYS[0],
        verdict=Verdict.QUARANTINED,
        evidence={},
        first_seen_ms=1,
        state=CandidateState.QUARANTINED,
        wait_seconds=0.0,
    )
    browser.world.connections.ledger.candidates.record(Shard(subscription=of, number=0), [given_up])
    form = {"keys": KEYS[0], "reason": "paid by hand", "seen": f"{KEYS[0]}=another"}
    answer = browser.post("/dismissals", form)
    assert answer.status is HTTPStatus.CONFLICT
    told = answer.body.decode()
    assert "It is not what you saw" in told
    assert f"{KEYS[0]} of ORDERS, billing: QUARANTINED as QUARANTINED" in told
    assert f'href="/messages/{KEYS[0]}"' in told
    assert browser.post("/holds", {"topic": "ORDERS", "reason": "r"}, key="k2").status is HTTPStatus.SEE_OTHER


def test_a_half_that_was_closed_is_told_with_the_dismissal(browser: Browser) -> None:
    half = {"state": "ended", "can_be_closed": False, "closed": True}
    keep(browser, DISMISS, dismissal(half, dry_run=False))
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "What came of the dismissal" in told
    assert "its half is " in told
    assert 'action="/dismissals"' not in told


def test_a_dismissal_tells_each_groups_outcome(browser: Browser) -> None:
    line = {"topic": "ORDERS", "group": "billing", "unique_key": KEYS[0], "outcome": "dismissed"}
    keep(browser, DISMISS, {"keys": [line], "exit_code": 0})
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "dismissed" in told
    assert "What came of the dismissal" in told
