"""A request that is sent twice is done once, on every database."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import SystemClock
from reconciler.contract.tables import HoldKind
from reconciler.errors import BrokerUnavailable, DatabaseAway, InvalidValue, TransientError
from reconciler.settings.file import load_settings
from reconciler.sql.tables import idempotency_key, ledger_metadata
from reconciler.web.acts.act import ActRequest, ActResult, NoFields, WebAct
from reconciler.web.acts.brakes import HOLD, LIFT
from reconciler.web.acts.once import DoneAct, done_once
from reconciler.web.acts.repairing import REPAIR
from reconciler.web.api.acts import over_api
from reconciler.web.console import outcomes
from reconciler.web.exchange import JSON, WebRefusal, WebRequest
from reconciler.web.roles import Visitor, WebRole
from reconciler.web.services import WebServices, build_services
from reconciler.wiring.connections import Connections
from tests.engines import make_tables

ROOT = Path(__file__).parents[3]
KEYS = [f"{number:032X}" for number in range(8)]
DRILL = {"topic": "ORDERS", "reason": "drill"}
REQUEST = WebRequest(
    method="POST",
    path="/api/v1/holds",
    headers={},
    request_id="r",
    parts={"topic": "ORDERS"},
    visitor=Visitor(name="anna", role=WebRole.ADMIN),
)
AGAIN = "do-it-once"


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def services(new_database_url: Callable[[], str]) -> Iterator[WebServices]:
    url = new_database_url()
    make_tables(url, ledger_metadata)
    settings = load_settings(ROOT / "config" / "reconciler.toml", {"RECONCILER_LEDGER__URL": url})
    with Connections(settings) as connections:
        yield build_services(settings, connections, clock=SystemClock())


def act_that(do: Callable[[WebServices, ActRequest, NoFields], ActResult], **more: Any) -> WebAct[NoFields]:
    return WebAct(path="/acts", role=WebRole.OPERATOR, summary="", fields=NoFields, do=do, answer={}, **more)


def ask(
    services: WebServices, act: WebAct[Any], document: dict[str, Any], *, key: str = AGAIN, by: str = ""
) -> DoneAct:
    visitor = Visitor(name=by, role=WebRole.ADMIN) if by else REQUEST.visitor
    return done_once(services, act, replace(REQUEST, visitor=visitor), document, key=key)


def actions(services: WebServices) -> Counter[str]:
    reports, environment = services.connections.ledger.reports, services.settings.environment
    return Counter(row.intent.command for row in reports.actions(environment, limit=100).rows)


def wait_for_the_end_of_the_lease(services: WebServices) -> None:
    with services.connections.ledger.database.writing() as connection:
        connection.execute(idempotency_key.update().values(lease_until_ms=1))


def dies(act: WebAct[Any]) -> WebAct[Any]:
    """The act, in a process that is killed just behind it."""

    def do(services: WebServices, asked: ActRequest, fields: Any) -> ActResult:
        act.do(services, asked, fields)
        raise Killed

    return replace(act, do=do)


def test_a_double_click_holds_twice(services: WebServices) -> None:
    barrier = threading.Barrier(8)

    def one(_number: int) -> str:
        barrier.wait(60)
        try:
            return "replayed" if ask(services, HOLD, DRILL).is_replayed else "done"
        except WebRefusal as refusal:
            return refusal.kind

    with ThreadPoolExecutor(8) as pool:
        answers = Counter(pool.map(one, range(8)))
    assert answers["done"] == 1
    assert answers["replayed"] + answers["under-way"] == 7
    assert actions(services) == {"hold": 1}


def test_a_repeated_request_gets_another_answer_than_the_first(services: WebServices) -> None:
    request = replace(
        REQUEST, headers={"content-type": JSON, "idempotency-key": AGAIN}, body=json.dumps(DRILL).encode()
    )
    first, again = over_api(HOLD)(services, request), over_api(HOLD)(services, request)
    assert (again.status, again.body) == (first.status, first.body)
    assert ("Idempotency-Replayed" in first.headers, again.headers["Idempotency-Replayed"]) == (False, "true")
    assert json.loads(again.body)["changed"] is True, "what came of it then"


def test_a_key_answers_another_request_another_visitor_or_another_act(services: WebServices) -> None:
    ask(services, HOLD, DRILL)
    for other in ({**DRILL, "reason": "another"}, {"topic": "ORDERS"}):
        with pytest.raises(WebRefusal) as refused:
            ask(services, HOLD, other)
        assert (refused.value.status, refused.value.kind) == (422, "key-of-another-request")
    assert not ask(services, HOLD, DRILL, by="ben").is_replayed
    assert not ask(services, LIFT, {}).is_replayed
    assert actions(services) == {"hold": 2, "resume": 1}


def test_a_request_of_who_saw_something_else_is_another_one(services: WebServices) -> None:
    assert ask(services, LIFT, {"seen": ["this"]}).result.document["lifted"] == []
    with pytest.raises(WebRefusal) as refused:
        ask(services, LIFT, {"seen": ["that"]})
    assert refused.value.kind == "key-of-another-request"
    assert ask(services, LIFT, {"seen": ["this"]}).is_replayed


def test_the_order_of_members_makes_it_another_request(services: WebServices) -> None:
    ask(services, HOLD, DRILL)
    assert ask(services, HOLD, dict(reversed(DRILL.items()))).is_replayed


def test_a_request_that_is_under_way_is_done_beside_itself(services: WebServices) -> None:
    inside: list[WebRefusal] = []

    def do(services: WebServices, _asked: ActRequest, _fields: NoFields) -> ActResult:
        with pytest.raises(WebRefusal) as refused:
            ask(services, slow, {})
        inside.append(refused.value)
        return ActResult(document={})

    slow = act_that(do, name="slow")
    assert not ask(services, slow, {}).is_replayed
    (refusal,) = inside
    assert (refusal.status, refusal.headers["Retry-After"]) == (409, "2")


def test_a_request_that_was_refused_cannot_be_sent_again(services: WebServices) -> None:
    for error in (InvalidValue("x", 1, "wrong"), DatabaseAway("away"), WebRefusal(HTTPStatus.CONFLICT, "not now")):
        outcomes = iter([error, None])

        def do(
            _services: WebServices, _asked: ActRequest, _fields: NoFields, outcomes: Iterator[Any] = outcomes
        ) -> ActResult:
            found = next(outcomes)
            if found is not None:
                raise found
            return ActResult(document={"well": True})

        act = act_that(do, name=type(error).__name__)
        with pytest.raises(type(error)):
            ask(services, act, {})
        assert not ask(services, act, {}).is_replayed


@pytest.mark.parametrize("error", [DatabaseAway("the answer to COMMIT was lost"), BrokerUnavailable("no answer")])
def test_a_lift_whose_commit_got_no_answer_is_done_again_and_undoes_what_came_since(
    services: WebServices, error: TransientError
) -> None:
    def do(services: WebServices, asked: ActRequest, fields: Any) -> ActResult:
        LIFT.do(services, asked, fields)
        raise error

    holds, environment = services.connections.ledger.holds, services.settings.environment
    ask(services, HOLD, DRILL)
    with pytest.raises(type(error)):
        ask(services, replace(LIFT, do=do), {})
    assert ask(services, HOLD, {**DRILL, "reason": "another person's"}, key="new").result.document["changed"]
    page = replace(REQUEST, parts={"act": LIFT.name, "key": AGAIN})
    for repeat in (lambda: ask(services, LIFT, {}), lambda: outcomes.show(services, page)):
        with pytest.raises(WebRefusal) as refused:
            repeat()
        assert (refused.value.status, refused.value.kind) == (409, "outcome-unknown")
    assert list(holds.active(environment)["ORDERS"]) == [HoldKind.HOLD]


def test_a_lift_that_was_refused_before_it_was_done_needs_a_new_key(services: WebServices) -> None:
    def do(_services: WebServices, _asked: ActRequest, _fields: Any) -> ActResult:
        raise InvalidValue("topic", "ODERS", "correct it")

    with pytest.raises(InvalidValue):
        ask(services, replace(LIFT, do=do), {})
    assert not ask(services, LIFT, {}).is_replayed


def test_a_process_that_died_in_a_harmless_act_blocks_it(services: WebServices) -> None:
    with pytest.raises(Killed):
        ask(services, dies(HOLD), DRILL)
    with pytest.raises(WebRefusal) as refused:
        ask(services, HOLD, DRILL)
    assert refused.value.kind == "under-way"
    wait_for_the_end_of_the_lease(services)
    assert ask(services, HOLD, DRILL).result.document["changed"] is False


def test_a_lift_that_was_done_is_done_again_after_its_process_died_and_undoes_what_came_since(
    services: WebServices,
) -> None:
    holds, environment = services.connections.ledger.holds, services.settings.environment
    ask(services, HOLD, DRILL)
    with pytest.raises(Killed):
        ask(services, dies(LIFT), {})
    assert ask(services, HOLD, {**DRILL, "reason": "another reason"}, key="new").result.document["changed"]
    wait_for_the_end_of_the_lease(services)
    with pytest.raises(WebRefusal) as refused:
        ask(services, LIFT, {})
    assert (refused.value.status, refused.value.kind) == (409, "outcome-unknown")
    assert list(holds.active(environment)["ORDERS"]) == [HoldKind.HOLD]
    assert ask(services, LIFT, {}, key="looked").result.document["lifted"] == ["HOLD"]


def test_a_job_whose_process_died_before_the_answer_is_placed_twice(services: WebServices) -> None:
    wanted = {"keys": KEYS}
    with pytest.raises(Killed):
        ask(services, dies(REPAIR), wanted)
    wait_for_the_end_of_the_lease(services)
    job: Any = ask(services, REPAIR, wanted).result.document["job"]
    jobs = services.connections.ledger.jobs.page(services.settings.environment, limit=10).rows
    assert [found.job_id for found in jobs] == [job["job_id"]]


def test_what_is_for_the_visitors_eyes_only_is_kept_in_the_ledger(services: WebServices) -> None:
    numbers = itertools.count(1)

    def do(_services: WebServices, _asked: ActRequest, _fields: NoFields) -> ActResult:
        return ActResult(document={"body": f"4711 0815, time {next(numbers)}"})

    act = act_that(do, name="look", keeps_result=False)
    ask(services, act, {})
    again = ask(services, act, {})
    assert (again.is_replayed, again.result.document) == (True, {"body": "4711 0815, time 2"})
    with services.connections.ledger.database.reading() as connection:
        assert "4711" not in str(connection.execute(idempotency_key.select()).all())
