"""What probes and Prometheus are told, whatever is away."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from reconciler.clock import ManualClock
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.measured import measured
from reconciler.web.roles import ANYBODY, Visitor, WebRole
from reconciler.web.services import WebServices
from reconciler.wiring.metrics import new_metering
from tests.unit.web.console_world import route_of, services_of, settings_of

SECRET_PLACE = "postgresql://ledger.internal: refused"
#: Whoever is on this machine, where there are no users; and one of the users.
SOMEBODY = Visitor(name="", role=WebRole.VIEWER)
VIEWER = Visitor(name="ada", role=WebRole.VIEWER)


class Reading:
    """In the place of a reading of something slow."""

    took_seconds = None

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def get(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def services(tmp_path: Path) -> Iterator[WebServices]:
    found = services_of(settings_of(tmp_path))
    yield found
    found.connections.close()


def knowing(services: WebServices, dependencies: Any, status: Any = None) -> WebServices:
    """Services for which dependencies and ledger are as told."""
    readings: Any = {"dependencies": Reading(dependencies), "status": Reading(status)}
    return replace(services, **readings)


def told(services: WebServices, path: str, *, by: Visitor = VIEWER, accept: str = "") -> WebResponse:
    """The answer, which is held against its description."""
    route, _ = route_of(path)
    request = WebRequest(method="GET", path=path, headers={"accept": accept}, request_id="r", visitor=by)
    answer = route.handler(services, request)
    assert route.about is not None
    assert answer.status in route.about.answers_with
    if answer.content_type == "application/json":
        Draft202012Validator(dict(route.about.answer)).validate(json.loads(answer.body))
    return answer


def test_a_process_is_killed_for_what_another_one_lacks(services: WebServices) -> None:
    everything_fails = knowing(services, AssertionError("asked"), AssertionError("asked"))
    assert told(everything_fails, "/livez", by=ANYBODY).status is HTTPStatus.OK


@pytest.mark.parametrize(
    ("dependencies", "status", "checks"),
    [
        ({"ledger": None, "redis": None}, HTTPStatus.OK, {"ledger": "ok", "redis": "ok"}),
        ({"ledger": None, "redis": "away: x"}, HTTPStatus.SERVICE_UNAVAILABLE, {"ledger": "ok", "redis": "away: x"}),
        (None, HTTPStatus.SERVICE_UNAVAILABLE, {"dependencies": "no answer in time"}),
    ],
)
def test_traffic_goes_to_a_process_that_cannot_serve_it(
    services: WebServices, dependencies: Mapping[str, str | None] | None, status: HTTPStatus, checks: dict[str, str]
) -> None:
    answer = told(knowing(services, dependencies), "/readyz")
    assert (answer.status, json.loads(answer.body)["checks"]) == (status, checks)
    assert answer.headers.get("Retry-After") == (None if status is HTTPStatus.OK else "10")


def test_a_stranger_reads_where_the_databases_are(services: WebServices) -> None:
    away = knowing(services, {"ledger": SECRET_PLACE, "redis": None})
    for stranger in (ANYBODY, SOMEBODY, replace(ANYBODY, name="ada")):
        assert json.loads(told(away, "/readyz", by=stranger).body)["checks"] == {"ledger": "away", "redis": "ok"}
    assert json.loads(told(away, "/readyz").body)["checks"]["ledger"] == SECRET_PLACE


def test_metrics_of_the_web_process_hide_that_the_ledger_is_away(services: WebServices) -> None:
    with measured(knowing(services, {"ledger": SECRET_PLACE, "redis": None}), None) as known:
        answer = told(known, "/metrics")
    lines = answer.body.decode().splitlines()
    assert answer.content_type.startswith("text/plain")
    assert f'{c.DEPENDENCY_UP.name}{{dependency="ledger"}} 0.0' in lines
    assert f"{c.STATE_UP.name} 0.0" in lines
    assert SECRET_PLACE not in answer.body.decode()


def test_metrics_of_a_process_that_counts_are_not_those_of_metrics_listen(services: WebServices) -> None:
    metering = new_metering(services.settings, "run", clock=ManualClock())
    with measured(services, metering) as known:
        assert told(known, "/metrics").body == metering.book.page("")[0]


def test_a_page_without_prometheus_client_is_a_bug(services: WebServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with measured(services, None) as known, pytest.raises(WebRefusal, match="install the extra metrics") as refused:
        told(known, "/metrics")
    assert refused.value.status is HTTPStatus.NOT_FOUND
