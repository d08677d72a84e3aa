"""What a program may do over the API, and what stands on record of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from jsonschema import Draft202012Validator

from reconciler.clock import SystemClock
from reconciler.commands.acts import repair
from reconciler.commands.acts.acknowledgement import acknowledged
from reconciler.commands.acts.jobs import RepairRequest, find_job
from reconciler.commands.acts.repair import RepairLine, digest_of, keys_changed, seen_now
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, HoldKind, JobState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import ChangedMeanwhile, DependencyAway, InvalidValue, UsageError
from reconciler.ledger.database import LedgerDatabase
from reconciler.policy.ports.ledger import RepairChange, VerdictEntry
from reconciler.settings.file import load_settings
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox, ledger_metadata
from reconciler.web.acts import dismissing
from reconciler.web.acts.repairing import REPAIRED_AT_ONCE_MAX
from reconciler.web.exchange import JSON, WebRefusal, WebRequest, WebResponse
from reconciler.web.problems import refusal_of
from reconciler.web.roles import Visitor, WebRole
from reconciler.web.routes import ROUTES
from reconciler.web.services import WebServices, build_services
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.polling import eventually
from tests.unit.consumers.messages import inbox_engine

ROOT = Path(__file__).parents[3]
ANNA = Visitor(name="anna", role=WebRole.OPERATOR)
ADA = Visitor(name="ada", role=WebRole.ADMIN)

Post = Callable[..., WebResponse]
_NEW_KEYS = itertools.count(1)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[WebServices]:
    """Over a ledger of the test's own; everything else is away."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    engine = open_engine(url)
    ledger_metadata.create_all(engine)
    engine.dispose()
    section = {"topic": "ORDERS", "inbox_url": f"sqlite:///{tmp_path}/inbox.db"}
    sections = [section | {"group": group} for group in ("billing", "invoices")]
    given = {"RECONCILER_LEDGER__URL": url, "RECONCILER_SUBSCRIPTIONS": json.dumps(sections)}
    settings = load_settings(ROOT / "config" / "reconciler.toml", given)
    with Connections(settings) as connections:
        yield build_services(settings, connections, clock=SystemClock())


@pytest.fixture
def post(services: WebServices) -> Post:
    """Asks `/api/v1` for an act; raises WebRefusal and ReconcilerError as the handler does."""

    def ask(path: str, document: object, *, by: Visitor = ANNA, key: str | None = None, **parts: str) -> WebResponse:
        (route,) = [r for r in ROUTES if r.path == f"/api/v1/{path}" and r.method == "POST"]
        headers = {"content-type": JSON, "idempotency-key": key or f"key-{next(_NEW_KEYS)}"}
        request = WebRequest(
            method="POST",
            path=route.path.format(**parts),
            headers=headers,
            request_id="r",
            parts=parts,
            body=json.dumps(document).encode(),
            visitor=by,
        )
        answer = route.handler(services, request)
        assert route.about is not None
        assert answer.status in route.about.answers_with
        Draft202012Validator(route.about.answer).validate(json.loads(answer.body))
        Draft202012Validator(route.about.body).validate(document)
        return answer

    return ask


KEYS = [f"{number:032X}" for number in range(200)]


def told(answer: WebResponse) -> Mapping[str, Any]:
    found = json.loads(answer.body)
    assert isinstance(found, dict)
    return found


def actions(services: WebServices) -> list[tuple[str, str, str | None, str, str | None]]:
    found = services.connections.ledger.reports.actions(services.settings.environment, limit=100).rows
    return [(a.intent.by, a.intent.command, a.intent.topic, a.intent.detail, a.result) for a in reversed(list(found))]


def judge(services: WebServices, verdict: Verdict, state: CandidateState, *keys: str, group: str = "billing") -> None:
    of = Subscription(environment=services.settings.environment, topic="ORDERS", group=group)
    entries = [
        VerdictEntry(unique_key=key, verdict=verdict, state=state, evidence={}, first_seen_ms=1, wait_seconds=0)
        for key in keys
    ]
    services.connections.ledger.candidates.record(Shard(subscription=of, number=0), entries)


def prove_losses(services: WebServices, count: int, *, group: str = "billing") -> None:
    judge(services, Verdict.LOST_CONFIRM, CandidateState.OPEN, *KEYS[:count], group=group)


def test_a_hold_is_on_record_under_the_visitors_name(post: Post, services: WebServices) -> None:
    assert told(post("holds", {"topic": "ORDERS", "reason": "drill"})) == {
        "topic": "ORDERS",
        "held": True,
        "changed": True,
        "until_ms": None,
    }
    lifted = told(post("holds/{topic}/lift", {}, topic="ORDERS"))
    assert lifted == {"topic": "ORDERS", "held": False, "lifted": ["HOLD"], "left": []}
    assert actions(services) == [
        ("web:anna", "hold", "ORDERS", "drill", "held"),
        ("web:anna", "resume", "ORDERS", "", "lifted HOLD"),
    ]


def test_an_operator_closes_the_breaker(post: Post, services: WebServices) -> None:
    holds, environment = services.connections.ledger.holds, services.settings.environment
    holds.place(environment, "ORDERS", HoldKind.BREAKER, by="run", reason="many")
    with pytest.raises(WebRefusal) as refused:
        post("holds/{topic}/lift", {"breaker": True}, topic="ORDERS")
    assert refused.value.status is HTTPStatus.FORBIDDEN
    assert told(post("holds/{topic}/lift", {}, topic="ORDERS"))["left"] == ["BREAKER"]
    assert told(post("holds/{topic}/lift", {"breaker": True}, topic="ORDERS", by=ADA))["lifted"] == ["BREAKER"]


def test_nobody_in_particular_acts(post: Post, services: WebServices) -> None:
    with pytest.raises(WebRefusal, match="log in"):
        post("holds", {"topic": "ORDERS"}, by=Visitor(name="", role=WebRole.ADMIN))
    assert actions(services) == []


@pytest.mark.parametrize("key", [" ", "a b", "schlüssel", "x" * 256, "tab\t"])
def test_without_a_proper_idempotency_key_nothing_is_done_and_the_header_is_named(
    post: Post, services: WebServices, key: str
) -> None:
    with pytest.raises(WebRefusal, match=r"the header Idempotency-Key is needed: 1 to 255 visible ASCII") as refused:
        post("holds", {"topic": "ORDERS", "reason": "drill"}, key=key)
    assert refused.value.status == 400
    assert actions(services) == []


def test_the_longest_key_that_is_promised_is_taken(post: Post) -> None:
    assert post("holds", {"topic": "ORDERS"}, key="~" * 255).status is HTTPStatus.OK


#: What no description tells: which keys are business ids, and what the ledger has.
UNDESCRIBED = {"unique_keys", "KEYS"}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("repairs", {"keys": [KEYS[0]], "dryrun": True}, "dryrun"),
    ("repairs", {"keys": [KEYS[0]], "dry_run": "yes"}, "dry_run"),
    ("repairs", {"keys": [KEYS[0]], "dry_run": 1}, "dry_run"),
    ("repairs", {"keys": KEYS[0]}, "keys"),
    ("repairs", {"keys": [7]}, "keys.0"),
    ("repairs", {}, "keys"),
    ("repairs", {"keys": [KEYS[0]], "verdict": "PARKED"}, "verdict"),
    ("repairs", {"all": True, "verdict": "GONE"}, "verdict"),
    ("acknowledgements", {"seen_ms": "now"}, "seen_ms"),
    ("repairs", {"keys": [KEYS[0]], "all": True}, "keys"),
    ("repairs", {"keys": [*KEYS[:6], "order-7"]}, "unique_keys"),
    ("repairs", {"keys": KEYS[:6], "topic": "ODERS"}, "topic"),
    ("repairs", {"keys": KEYS[:6], "reason": "x" * 501}, "reason"),
    ("holds", {}, "topic"),
    ("holds", {"topic": "ODERS"}, "topic"),
    ("dismissals", {"keys": [], "reason": "done"}, "keys"),
    ("dismissals", {"keys": [KEYS[0]], "reason": " "}, "reason"),
    ("dismissals", {"keys": [KEYS[0]]}, "reason"),
    ("dismissals", {"keys": [KEYS[0]], "reason": "no verdict has it"}, "KEYS"),
    ("dismissals", {"keys": ["\ud800"], "reason": "half of a surrogate pair"}, "KEYS"),
    ("dismissals", {"keys": [KEYS[0]], "reason": "x", "take_back": True, "roll_back_half": True}, "take_back"),
    ("dismissals", {"keys": [KEYS[0]], "take_back": True, "dry_run": True}, "take_back"),
    ("dismissals", {"keys": [KEYS[0]] * 101, "dry_run": True}, "keys"),
    ("dismissals", {"keys": [KEYS[0]], "all": True, "dry_run": True}, "keys"),
    ("dismissals", {"keys": [KEYS[0]], "verdict": "PARKED", "dry_run": True}, "verdict"),
    ("dismissals", {"all": True, "reason": "x"}, "seen"),
    ("dismissals", {"all": True, "reason": "x", "take_back": True, "seen": {KEYS[0]: "ab"}}, "take_back"),
    ("repairs", {"keys": [KEYS[0]] * 101, "dry_run": True}, "keys"),
    ("repairs", {"keys": [KEYS[0]], "failed": True}, "failed"),
    ("repairs", {"all": True, "failed": True, "verdict": "PARKED"}, "failed"),
    ("rebuilds", {"since_ms": -1}, "since_ms"),
    ("rebuilds", {"since_ms": 1.5}, "since_ms"),
    ("rebuilds", {"since_ms": 2**63 - 1}, "since_ms"),
]
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("repairs", {"keys": [KEYS[0]]}),
    ("repairs", {"keys": [KEYS[0]], "all": False, "dry_run": True, "topic": None}),
    ("repairs", {"all": True, "keys": [], "group": "billing"}),
    ("repairs", {"all": True, "dry_run": True, "verdict": "PARKED"}),
    ("repairs", {"all": True, "failed": True, "verdict": None, "group": "billing"}),
    ("acknowledgements", {"seen_ms": None}),
    ("dismissals", {"keys": [KEYS[0]], "reason": "done"}),
    ("dismissals", {"keys": [KEYS[0]], "reason": "done", "roll_back_half": True, "take_back": False}),
    ("dismissals", {"keys": [KEYS[0]], "dry_run": True, "roll_back_half": True}),
    ("dismissals", {"keys": [KEYS[0]], "reason": "no", "take_back": True}),
    ("dismissals", {"all": True, "dry_run": True, "verdict": "COLLISION", "group": "billing"}),
    ("dismissals", {"all": True, "seen": {KEYS[0]: "ab12"}, "digest": "ab", "reason": "paid by hand"}),
    ("messages/{unique_key}/body", {"reason": "call 7"}),
]


def described(path: str) -> Draft202012Validator:
    """The schema of the body of an act."""
    about = next(route.about for route in ROUTES if (route.path, route.method) == (f"/api/v1/{path}", "POST"))
    assert about is not None
    assert about.body is not None
    return Draft202012Validator(dict(about.body))


def test_the_description_takes_what_is_refused_or_refuses_what_is_taken() -> None:
    for path, document in RIGHT:
        described(path).validate(document)
    taken = [(path, field) for path, document, field in WRONG if described(path).is_valid(document)]
    assert [one for one in taken if one[1] not in UNDESCRIBED] == [
        ("repairs", "topic"), ("holds", "topic"), ("rebuilds", "since_ms")
    ]  # fmt: skip
    for blank in ({}, {"reason": ""}, {"reason": "  "}):
        assert not described("messages/{unique_key}/body").is_valid(blank)


@pytest.mark.parametrize(("path", "document", "field"), WRONG)
def test_a_wrong_field_is_passed_over_and_something_is_done(
    post: Post, services: WebServices, path: str, document: object, field: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        post(path, document)
    assert refused.value.field == field
    assert actions(services) == []


def test_many_named_keys_are_a_job_under_the_visitors_name(post: Post, services: WebServices) -> None:
    with pytest.raises(DependencyAway):  # a few are repaired at once, which asks for everything
        post("repairs", {"keys": KEYS[:REPAIRED_AT_ONCE_MAX], "topic": "ORDERS"})
    answer = post("repairs", {"keys": KEYS[:6], "topic": "ORDERS", "reason": "drill"})
    job = told(answer)["job"]
    assert answer.status is HTTPStatus.ACCEPTED
    assert answer.headers["Location"] == f"/api/v1/jobs/{job['job_id']}"
    assert (job["state"], job["by"], job["request"]["named_keys"]) == ("QUEUED", "web:anna", 6)
    detail = f"job {job['job_id']}, repair, drill"
    assert actions(services) == [("web:anna", "job", "ORDERS", detail, "QUEUED")]


def test_a_bulk_that_needs_an_admin_is_asked_for_by_an_operator(post: Post, services: WebServices) -> None:
    for path, more in (("repairs", {}), ("dismissals", {"reason": "done"})):
        with pytest.raises(WebRefusal) as refused:
            post(path, {"keys": KEYS[:101], **more})
        assert refused.value.status is HTTPStatus.FORBIDDEN
    assert post("repairs", {"keys": KEYS[:101]}, by=ADA).status is HTTPStatus.ACCEPTED
    assert post("repairs", {"keys": KEYS[:100]}).status is HTTPStatus.ACCEPTED
    assert [command for _, command, *_ in actions(services)] == ["job", "job"]


def test_all_losses_are_more_than_those_that_an_operator_may_repair(post: Post, services: WebServices) -> None:
    """Of few losses the job has the keys: the ones that come before it begins are not in it."""
    with pytest.raises(WebRefusal, match="no loss is open"):
        post("repairs", {"all": True})
    prove_losses(services, 100)
    job = told(post("repairs", {"all": True, "group": "billing"}))["job"]
    assert job["request"]["named_keys"] == 100
    with pytest.raises(InvalidValue, match="group"):
        post("repairs", {"all": True, "group": "shipping"})
    prove_losses(services, 101)
    with pytest.raises(WebRefusal) as refused:
        post("repairs", {"all": True})
    assert refused.value.status is HTTPStatus.FORBIDDEN
    job = told(post("repairs", {"all": True}, by=ADA))["job"]
    assert job["request"]["named_keys"] == 0


def test_all_losses_of_one_group_are_a_job_of_that_group(post: Post, services: WebServices) -> None:
    prove_losses(services, 8)
    prove_losses(services, 6, group="invoices")
    job_id = told(post("repairs", {"all": True, "group": "invoices"}))["job"]["job_id"]
    request = RepairRequest.of(find_job(services.connections, job_id).request)
    assert (request.group, sorted(request.unique_keys)) == ("invoices", KEYS[:6])


@pytest.mark.parametrize("stale", [1, 2])
def test_what_has_changed_is_refused_only_where_nothing_else_was_repaired(
    post: Post, services: WebServices, monkeypatch: pytest.MonkeyPatch, stale: int
) -> None:
    def sent(_rounds: object, _plan: object, of: Subscription, unique_key: str, *, dry_run: bool) -> RepairLine:
        outcome = "planned" if dry_run else "sent"
        return RepairLine(
            topic=of.topic, group=of.group, unique_key=unique_key, verdict="LOST_CONFIRM", outcome=outcome, rung=""
        )

    monkeypatch.setattr(repair, "_repair", sent)
    monkeypatch.setattr(repair, "require_all_dependencies", lambda _: None)
    prove_losses(services, 2)
    document = {"keys": KEYS[:2], "seen": dict.fromkeys(KEYS[:stale], "another")}
    if stale == 2:
        with pytest.raises(ChangedMeanwhile):
            post("repairs", document)
        return
    answer = told(post("repairs", document))
    assert ([line["outcome"] for line in answer["keys"]], answer["exit_code"]) == (["changed", "sent"], 5)


def test_all_losses_of_one_verdict_are_a_job_of_their_keys(post: Post, services: WebServices) -> None:
    prove_losses(services, 8)
    document = {"all": True, "group": "billing", "verdict": "LOST_CONFIRM"}
    assert told(post("repairs", document))["job"]["request"]["named_keys"] == 8
    with pytest.raises(WebRefusal, match="no loss is open"):
        post("repairs", {"all": True, "group": "billing", "verdict": "PARKED"})


def test_what_failed_for_one_group_is_a_job_of_its_keys(post: Post, services: WebServices) -> None:
    with pytest.raises(WebRefusal, match="no repair has failed"):
        post("repairs", {"all": True, "failed": True})
    give_up(services)
    prove_losses(services, 3, group="invoices")
    job_id = told(post("repairs", {"all": True, "failed": True, "group": "billing"}))["job"]["job_id"]
    request = RepairRequest.of(find_job(services.connections, job_id).request)
    assert (request.group, request.unique_keys) == ("billing", (KEYS[0],))


def test_of_all_what_was_counted_is_repaired_and_what_matches_later_is_named_and_left(
    post: Post, services: WebServices
) -> None:
    """A hundred and two are lost; the preview had a hundred and one, more than an operator repairs at once."""
    prove_losses(services, 102)
    seen = seen_now(services.connections, KEYS[:101])
    document = {"all": True, "seen": seen, "digest": digest_of(seen)}
    with pytest.raises(WebRefusal) as refused:
        post("repairs", document)
    assert refused.value.status is HTTPStatus.FORBIDDEN
    with pytest.raises(InvalidValue, match="those of the preview"):
        post("repairs", document | {"seen": {KEYS[0]: seen[KEYS[0]]}}, by=ADA)
    job = told(post("repairs", document, by=ADA))["job"]
    assert (job["request"]["named_keys"], job["request"]["left"], job["request"]["left_number"]) == (
        101,
        [KEYS[101]],
        1,
    )
    request = RepairRequest.of(find_job(services.connections, job["job_id"]).request)
    assert (sorted(request.unique_keys), dict(request.seen)) == (sorted(KEYS[:101]), seen)
    assert (request.left, request.left_number) == ((KEYS[101],), 1)


def test_of_all_that_waits_what_was_counted_is_dismissed_and_what_comes_later_is_named_and_left(
    post: Post, services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three wait, of which the preview looks at two; a fourth comes before the act, and the first has changed."""
    monkeypatch.setattr(dismissing, "PREVIEWED_MAX", 2)
    with pytest.raises(WebRefusal, match="nothing waits for a person"):
        post("dismissals", {"all": True, "dry_run": True})
    for key in KEYS[:3]:
        give_up(services, key)
    preview = told(post("dismissals", {"all": True, "dry_run": True, "group": "billing"}))
    assert (len(preview["keys"]), preview["messages"], set(preview["seen"])) == (2, 3, set(KEYS[:3]))
    give_up(services, KEYS[3])
    begin_to_send(services, KEYS[0])
    document = {"all": True, "group": "billing", "reason": "paid by hand", "seen": preview["seen"]}
    with pytest.raises(InvalidValue, match="those of the preview"):
        post("dismissals", document | {"digest": digest_of({})})
    answer = told(post("dismissals", document | {"digest": preview["digest"]}))
    outcomes = {line["unique_key"]: line["outcome"] for line in answer["keys"]}
    assert outcomes == {KEYS[0]: "changed", KEYS[1]: "dismissed", KEYS[2]: "dismissed"}
    assert (answer["left"], answer["left_number"]) == ([KEYS[3]], 1)


def test_who_has_an_incident_is_seen_until_more_is_lost_or_two_hours_are_over(
    post: Post, services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = services.connections
    lost = SimpleNamespace(lost=1)
    monkeypatch.setattr(WebServices, "newest_status", lambda _: lost)

    def who(*, minutes: int = 0) -> str:
        return "".join(map(said, acknowledged(connections, now_ms=connections.ledger_now_ms() + minutes * 60_000)))

    assert not who()
    prove_losses(services, 1)
    saw_ms = connections.ledger_now_ms()
    eventually(lambda: connections.ledger_now_ms() > saw_ms, within_seconds=10)
    assert told(post("acknowledgements", {"seen_ms": saw_ms})) == {"by": "web:anna"}
    assert actions(services) == [("web:anna", "acknowledge", None, "", "acknowledged")]
    assert who().startswith("anna has it since ")
    assert who(minutes=119)
    assert not who(minutes=121)
    eventually(lambda: connections.ledger_now_ms() > saw_ms + 1, within_seconds=10)
    prove_losses(services, 2)
    assert not who()
    with pytest.raises(ChangedMeanwhile, match="more is lost"):
        post("acknowledgements", {"seen_ms": saw_ms})
    post("acknowledgements", {}, by=ADA)
    assert who().startswith("ada has it since ")
    lost.lost = 0
    with pytest.raises(WebRefusal, match="no loss is open"):
        post("acknowledgements", {})


def test_a_rebuild_is_a_job_of_an_admin(post: Post, services: WebServices) -> None:
    with pytest.raises(UsageError, match="no outage"):
        post("rebuilds", {}, by=ADA)
    answer = post("rebuilds", {"since_ms": 5}, by=ADA)
    assert (answer.status, told(answer)["job"]["kind"]) == (HTTPStatus.ACCEPTED, "REBUILD")
    assert [row[:2] for row in actions(services)] == [("web:ada", "job")]


def test_a_job_is_cancelled_without_a_name(post: Post, services: WebServices) -> None:
    job_id = told(post("repairs", {"keys": KEYS[:6]}))["job"]["job_id"]
    assert told(post("jobs/{job_id}/cancel", {}, by=ADA, job_id=job_id))["job"]["state"] == "CANCELLED"
    assert find_job(services.connections, job_id).state is JobState.CANCELLED
    assert find_job(services.connections, job_id).cancelled_by == "web:ada"
    assert actions(services)[-1] == ("web:ada", "cancel", None, f"job {job_id}", "CANCELLED")
    with pytest.raises(WebRefusal) as refused:
        post("jobs/{job_id}/cancel", {}, job_id="0" * 32)
    assert refused.value.status is HTTPStatus.NOT_FOUND


def test_a_key_that_cancelled_one_job_cancels_no_other(post: Post, services: WebServices) -> None:
    """The bodies are the same, and the path alone tells which job is meant."""
    one, other = (told(post("repairs", {"keys": keys}))["job"]["job_id"] for keys in (KEYS[:6], KEYS[6:12]))
    post("jobs/{job_id}/cancel", {}, key="once", job_id=one)
    with pytest.raises(WebRefusal) as refused:
        post("jobs/{job_id}/cancel", {}, key="once", job_id=other)
    assert (refused.value.status, refused.value.kind) == (422, "key-of-another-request")
    states = [find_job(services.connections, job_id).state for job_id in (one, other)]
    assert states == [JobState.CANCELLED, JobState.QUEUED]


def test_a_body_is_opened_without_a_reason_or_a_row(post: Post, services: WebServices) -> None:
    for document in ({}, {"reason": ""}, {"reason": "  "}):
        with pytest.raises(InvalidValue):
            post("messages/{unique_key}/body", document, unique_key=KEYS[0])
    with pytest.raises(InvalidValue):
        post("messages/{unique_key}/body", {"reason": "call 7"}, unique_key="order-7")
    assert actions(services) == []


def test_a_keys_dismissal_is_on_record(post: Post, services: WebServices) -> None:
    prove_losses(services, 1)
    lines = told(post("dismissals", {"keys": [KEYS[0]], "reason": "sent by hand"}))["keys"]
    assert [line["unique_key"] for line in lines] == [KEYS[0]]
    (row,) = actions(services)
    assert row[:4] == ("web:anna", "dismiss", "ORDERS", "sent by hand")


def give_up(services: WebServices, key: str = KEYS[0]) -> None:
    """A key of billing that needs a person, and its repair, which has failed."""
    environment, ledger = services.settings.environment, services.connections.ledger
    judge(services, Verdict.QUARANTINED, CandidateState.QUARANTINED, key)
    ledger.repairs.open(environment, "ORDERS", key, rung=Rung.END)
    (row,) = ledger.repairs.of_keys(environment, "ORDERS", [key])[key]
    assert ledger.repairs.claim(row, token="run", lease_seconds=60) is not None
    ledger.repairs.change(row, RepairChange(state=RepairState.FAILED, rung=Rung.END), token="run")


def begin_to_send(services: WebServices, key: str = KEYS[0]) -> None:
    """As another person's repair does, and `run` after it."""
    environment, repairs = services.settings.environment, services.connections.ledger.repairs
    (row,) = repairs.of_keys(environment, "ORDERS", [key])[key]
    assert repairs.reopen(row, rung=Rung.END)
    assert repairs.claim(row, token="other", lease_seconds=60) is not None
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
    assert repairs.change(row, sending, token="other") is not None


def consume(services: WebServices, key: str = KEYS[0]) -> None:
    judge(services, Verdict.CONSUMED, CandidateState.SETTLED, key)


def verdict_of(services: WebServices, key: str = KEYS[0]) -> tuple[CandidateState, Verdict]:
    (row,) = services.connections.ledger.reports.life(services.settings.environment, key).candidates
    return row.state, row.verdict


def before_write(services: WebServices, number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process is quicker than that transaction of this one."""
    writing = LedgerDatabase.writing
    left = [number]

    def later(self: LedgerDatabase) -> AbstractContextManager[sa.Connection]:
        left[0] -= 1
        if left[0] == 0:
            monkeypatch.setattr(LedgerDatabase, "writing", writing)
            act()
        return writing(self)

    monkeypatch.setattr(LedgerDatabase, "writing", later)


def test_a_repair_that_begins_between_the_look_and_the_dismissal_is_overwritten(
    post: Post, services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up(services)
    # The first writes note the request and the act, the next one is the dismissal's.
    before_write(services, 3, lambda: begin_to_send(services), monkeypatch)
    answer = told(post("dismissals", {"keys": [KEYS[0]], "reason": "paid by hand"}))
    (line,) = answer["keys"]
    assert (line["outcome"].startswith("repair is SENDING, claimed until"), answer["exit_code"]) == (True, 4)
    assert verdict_of(services) == (CandidateState.QUARANTINED, Verdict.QUARANTINED)


def test_what_happens_between_the_look_and_the_dismissal_is_overwritten(
    post: Post, services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up(services)
    before_write(services, 3, lambda: consume(services), monkeypatch)
    with pytest.raises(ChangedMeanwhile) as refused:
        post("dismissals", {"keys": [KEYS[0]], "reason": "paid by hand"})
    expected = (CandidateState.SETTLED, Verdict.CONSUMED)
    assert verdict_of(services) == expected
    lines = refused.value.now["keys"]
    assert isinstance(lines, list)
    (line,) = lines
    now = line["now"]["verdicts"]["billing"]
    assert (line["outcome"], now) == ("changed", {"state": str(expected[0]), "verdict": str(expected[1])})
    refusal = refusal_of(refused.value)
    assert (refusal.status, refusal.kind) == (HTTPStatus.CONFLICT, "changed")
    assert str(refused.value) == (
        "the message has changed since it was looked at, nothing was done; now: "
        f"{KEYS[0]} of ORDERS, billing: SETTLED as CONSUMED"
    )
    assert actions(services)[-1][4] == "billing: changed"


def test_what_has_its_effect_is_dismissed(post: Post, services: WebServices, tmp_path: Path) -> None:
    give_up(services)
    with inbox_engine(f"sqlite:///{tmp_path}/inbox.db") as engine, engine.begin() as connection:
        row = {"consumer_group": "billing", "unique_key": KEYS[0], "topic": "ORDERS", "source": "consumer"}
        connection.execute(sa.insert(inbox).values(**row, applied_at_ms=1_700_000_000_000))
    preview = told(post("dismissals", {"keys": [KEYS[0]], "dry_run": True}))
    assert ([line["outcome"] for line in preview["keys"]], preview["exit_code"]) == (["has its effect"], 5)
    with pytest.raises(ChangedMeanwhile, match="it took effect at 2023-11-14T22:13:20Z, and a payment") as refused:
        post("dismissals", {"keys": [KEYS[0]], "reason": "paid by hand"})
    assert (refusal_of(refused.value).status, refusal_of(refused.value).kind) == (HTTPStatus.CONFLICT, "changed")
    assert verdict_of(services) == (CandidateState.QUARANTINED, Verdict.QUARANTINED)


def shown_of(services: WebServices, key: str = KEYS[0]) -> str:
    return services.connections.ledger.reports.life(services.settings.environment, key).seen


def test_a_page_that_is_out_of_date_dismisses_what_was_sent_and_given_up_again(
    post: Post, services: WebServices
) -> None:
    """At the time of the click it looks as it did; in between a copy was sent, and may be delivered."""
    give_up(services)
    shown = shown_of(services)
    begin_to_send(services)
    repairs, environment = services.connections.ledger.repairs, services.settings.environment
    (row,) = repairs.of_keys(environment, "ORDERS", [KEYS[0]])[KEYS[0]]
    repairs.change(row, RepairChange(state=RepairState.FAILED, rung=Rung.END), token="other")
    document = {"keys": [KEYS[0]], "reason": "paid by hand", "seen": {KEYS[0]: shown}}
    with pytest.raises(ChangedMeanwhile):
        post("dismissals", document)
    assert verdict_of(services)[0] is CandidateState.QUARANTINED
    again = told(post("dismissals", {**document, "seen": {KEYS[0]: shown_of(services)}}))
    assert [line["outcome"] for line in again["keys"]] == ["dismissed"]


def test_one_key_that_has_changed_keeps_the_others_from_being_dismissed(post: Post, services: WebServices) -> None:
    for key in KEYS[:2]:
        give_up(services, key)
    shown = {key: shown_of(services, key) for key in KEYS[:2]}
    consume(services, KEYS[1])
    answer = told(post("dismissals", {"keys": KEYS[:2], "reason": "paid by hand", "seen": shown}))
    assert [line["outcome"] for line in answer["keys"]] == ["dismissed", "changed"]
    assert answer["exit_code"] == 5
    assert verdict_of(services, KEYS[1]) == (CandidateState.SETTLED, Verdict.CONSUMED)


def test_a_dismissal_is_taken_back_on_record_if_it_is_the_one_that_was_seen(post: Post, services: WebServices) -> None:
    give_up(services)
    post("dismissals", {"keys": [KEYS[0]], "reason": "paid by hand"})
    document = {"keys": [KEYS[0]], "reason": "not paid", "take_back": True}
    with pytest.raises(ChangedMeanwhile) as refused:
        post("dismissals", {**document, "seen": {KEYS[0]: "another"}})
    assert f"{KEYS[0]} of ORDERS, billing: SETTLED as QUARANTINED" in str(refused.value)
    answer = told(post("dismissals", {**document, "seen": {KEYS[0]: shown_of(services)}}))
    assert ([line["outcome"] for line in answer["keys"]], answer["exit_code"]) == (["taken back"], 0)
    assert verdict_of(services) == (CandidateState.QUARANTINED, Verdict.QUARANTINED)
    assert "take-back" in str(actions(services)[-1])
    again = told(post("dismissals", document))
    assert ([line["outcome"] for line in again["keys"]], again["exit_code"]) == (["not dismissed"], 4)
    for more in ("dry_run", "roll_back_half"):
        with pytest.raises(InvalidValue, match="take_back"):
            post("dismissals", {**document, more: True})


def test_a_lift_ends_a_hold_that_another_person_placed_since(post: Post, services: WebServices) -> None:
    holds, environment = services.connections.ledger.holds, services.settings.environment
    post("holds", {"topic": "ORDERS", "reason": "drill"})
    (shown,) = services.connections.ledger.reports.holds(environment)
    assert holds.lift_seen(environment, shown)
    post("holds", {"topic": "ORDERS", "reason": "the consumer pays twice"}, by=ADA)
    with pytest.raises(ChangedMeanwhile) as refused:
        post("holds/{topic}/lift", {"seen": [shown.seen]}, topic="ORDERS")
    assert refused.value.now == {"HOLD": "web:ada: the consumer pays twice"}
    assert list(holds.active(environment)) == ["ORDERS"]
    assert told(post("holds", {"topic": "ORDERS"}))["held"], "a hold is never refused"
    (shown,) = services.connections.ledger.reports.holds(environment)
    assert told(post("holds/{topic}/lift", {"seen": [shown.seen]}, topic="ORDERS"))["lifted"] == ["HOLD"]


def test_a_hold_that_another_person_places_between_the_look_and_the_lift_stays(
    post: Post, services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, environment = services.connections.ledger.holds, services.settings.environment

    def place_another() -> None:
        holds.lift(environment, "ORDERS", HoldKind.HOLD)
        holds.place(environment, "ORDERS", HoldKind.HOLD, by="web:ada", reason="the consumer pays twice")

    post("holds", {"topic": "ORDERS", "reason": "drill"})
    before_write(services, 3, place_another, monkeypatch)
    with pytest.raises(ChangedMeanwhile) as refused:
        post("holds/{topic}/lift", {}, topic="ORDERS")
    assert refused.value.now == {"HOLD": "web:ada: the consumer pays twice"}
    assert list(holds.active(environment)) == ["ORDERS"]


def test_a_hold_that_another_person_lifts_between_the_look_and_the_lift_counts_as_lifted_by_that_person(
    post: Post, services: WebServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, environment = services.connections.ledger.holds, services.settings.environment

    def lift() -> None:
        holds.lift(environment, "ORDERS", HoldKind.HOLD)

    post("holds", {"topic": "ORDERS", "reason": "drill"})
    before_write(services, 3, lift, monkeypatch)
    answer = told(post("holds/{topic}/lift", {}, topic="ORDERS"))
    assert (answer["lifted"], list(holds.active(environment))) == ([], [])
    assert "was not on hold" in str(actions(services)[-1])


def test_a_breaker_that_opened_for_another_storm_is_closed_by_who_saw_the_first(
    post: Post, services: WebServices
) -> None:
    holds, environment = services.connections.ledger.holds, services.settings.environment
    holds.place(environment, "ORDERS", HoldKind.BREAKER, by="run", reason="1001 losses")
    (shown,) = services.connections.ledger.reports.holds(environment)
    holds.place(environment, "ORDERS", HoldKind.BREAKER, by="run", reason="5000 losses")
    closing = {"breaker": True, "seen": [shown.seen]}
    with pytest.raises(ChangedMeanwhile):
        post("holds/{topic}/lift", closing, topic="ORDERS", by=ADA)
    (shown,) = services.connections.ledger.reports.holds(environment)
    holds.renew(environment, "ORDERS")  # the same storm goes on
    assert told(post("holds/{topic}/lift", {**closing, "seen": [shown.seen]}, topic="ORDERS", by=ADA))["left"] == []


def test_a_job_repairs_what_was_dismissed_before_it_began(post: Post, services: WebServices) -> None:
    for key in KEYS[:6]:
        give_up(services, key)
    shown = {key: shown_of(services, key) for key in KEYS[:6]}
    job = told(post("repairs", {"keys": KEYS[:6], "seen": shown}))["job"]
    post("dismissals", {"keys": KEYS[:1], "reason": "paid by hand"})
    request = RepairRequest.of(find_job(services.connections, job["job_id"]).request)
    assert keys_changed(services.connections, request.seen) == {KEYS[0]}
