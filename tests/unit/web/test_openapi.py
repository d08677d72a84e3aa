"""The API's description says what is served, all of it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from reconciler.commands.status.report import StatusReport
from reconciler.web.api.openapi import PROBLEM, openapi_document
from reconciler.web.exchange import WebResponse
from reconciler.web.problems import PROBLEM_JSON
from reconciler.web.route import Surface, WebRoute
from reconciler.web.routes import ROUTES
from reconciler.web.services import WebServices
from tests.unit.web import audit_cases
from tests.unit.web.console_world import asked, route_of, services_of, settings_of
from tests.unit.web.ledger_of_cases import COUNTS, GROUP, HOSTILE, TOPIC, key, make_ledger
from tests.unit.web.reports import facts_of, status_of

#: Each GET of the API -> addresses that are answered well, and below that some that are refused.
WELL = {
    "/api/v1/openapi.json": [""],
    "/api/v1/status": [""],
    "/api/v1/candidates": [
        "",
        "?limit=3",
        f"?topic={TOPIC}&group={GROUP}&state=OPEN",
        "?verdict=LOST_CONFIRM&has_loss=true",
        "?topic=RETIRED&state=",
        f"?key={key(4)}",
        "?since_ms=1799999000000&before_ms=1800000000000",
    ],
    "/api/v1/repairs": ["", "?state=FAILED&rung=end&scope=*"],
    "/api/v1/rounds": ["", f"?topic={TOPIC}&group={GROUP}&limit=1000"],
    "/api/v1/outages": [""],
    "/api/v1/quarantine": [""],
    "/api/v1/actions": ["", "?by=web:ada"],
    "/api/v1/floors": ["", "?topic=another"],
    "/api/v1/holds": [""],
    "/api/v1/jobs": ["", "?state=FAILED&by=web:ada"],
    "/api/v1/jobs/{job_id}": [f"/{3:032x}"],
    "/api/v1/messages/{name:path}": [f"/{key(3)}"],
    "/api/v1/doctor": [""],
    "/api/v1/audits": ["", "?limit=2"],
    "/api/v1/audits/{name}": ["/2026-11-20", "/2026-11-21", "/latest"],
}
REFUSED = {
    "/api/v1/status?verbose=1": 422,
    "/api/v1/candidates?state=LOST": 422,
    "/api/v1/candidates?limit=0": 422,
    "/api/v1/candidates?limit=1001": 422,
    "/api/v1/candidates?limit=1e3": 422,
    "/api/v1/candidates?limit=%C2%B2": 422,
    "/api/v1/candidates?has_loss=yes": 422,
    "/api/v1/candidates?stat=OPEN": 422,
    "/api/v1/candidates?state=OPEN&state=SETTLED": 422,
    "/api/v1/candidates?topic=%00": 422,
    "/api/v1/candidates?key=%00": 422,
    f"/api/v1/candidates?topic={'x' * 161}": 422,
    "/api/v1/candidates?since_ms=2&before_ms=1": 422,
    "/api/v1/candidates?since_ms=9223372036854775808": 422,
    "/api/v1/candidates?cursor=!": 422,
    "/api/v1/jobs?state=OPEN": 422,
    "/api/v1/jobs/none": 404,
    "/api/v1/jobs/%00": 422,
    "/api/v1/messages/%00": 422,
    "/api/v1/audits/none": 404,
    "/api/v1/audits/..": 404,
    "/api/v1/audits/%00": 422,
    "/api/v1/audits?topic=ORDERS": 422,
    "/api/v1/audits?cursor=!": 422,
}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServices]:
    """Over a ledger with a row of every kind; every other dependency is away."""
    folder = tmp_path_factory.mktemp("api")
    make_ledger(folder)
    (folder / "audits").mkdir()
    (folder / "audits" / "latest").symlink_to("2026-11-21")
    audits = {
        "2026-11-20": audit_cases.check(audit_cases.statement()),
        "2026-11-21": audit_cases.altered(audit_cases.statement(day=1, topic=HOSTILE, signed_by=None)),
        "2026-11-22": audit_cases.check(verdict="no answer"),
    }
    found = replace(services_of(settings_of(folder)), audits=audit_cases.known_shelf(folder, audits))
    yield found
    found.connections.close()


@pytest.fixture(autouse=True)
def status(monkeypatch: pytest.MonkeyPatch, services: WebServices) -> None:
    """As it is read from this ledger, without a question to what is away."""
    reports, environment = services.connections.ledger.reports, services.settings.environment
    report = StatusReport(
        subscriptions=(status_of(),),
        verdicts=tuple(reports.verdict_counts(environment)),
        repairs=tuple(reports.repair_counts(environment)),
        holds=tuple(reports.holds(environment)),
        outages=tuple(reports.outages(environment, limit=5).rows),
        away=facts_of(HOSTILE),
    )
    monkeypatch.setattr(WebServices, "newest_status", lambda _services: report)


def document() -> Any:
    return json.loads(json.dumps(openapi_document(ROUTES, prefix="/reconciler")))


def api_routes() -> list[WebRoute]:
    """Those for programs; what a page draws is its own affair."""
    return [route for route in ROUTES if route.surface is Surface.API and not route.path.startswith("/overview/")]


def fits(answer: WebResponse, schema: Mapping[str, Any]) -> Any:
    found = json.loads(answer.body)
    Draft202012Validator(schema).validate(found)
    return found


def test_a_route_is_served_and_not_described_or_described_and_not_served() -> None:
    served = {(route.path.replace(":path", ""), route.method.lower()) for route in api_routes()}
    described = {(path, method) for path, methods in document()["paths"].items() for method in methods}
    assert served == described
    names = [method["operationId"] for methods in document()["paths"].values() for method in methods.values()]
    assert len(set(names)) == len(names)


def test_a_place_in_a_path_has_no_description() -> None:
    for path, methods in document()["paths"].items():
        for method in methods.values():
            places = {one["name"] for one in method["parameters"] if one["in"] == "path"}
            assert places == {part.strip("{}") for part in path.split("/") if part.startswith("{")}, path


def test_the_document_is_no_openapi() -> None:
    OpenAPIV31SpecValidator(document()).validate()


def schemas_in(node: object, *, is_schema: bool = False) -> Iterator[Mapping[str, Any]]:
    """Every schema below: what is under `schema`, and what that is made of."""
    if isinstance(node, list):
        for one in node:
            yield from schemas_in(one, is_schema=is_schema)
    elif isinstance(node, dict):
        if is_schema:
            yield node
        for name, value in node.items():
            of_schema = is_schema and name in {"items", "anyOf", "oneOf", "allOf", "additionalProperties"}
            if is_schema and name == "properties":
                yield from schemas_in(list(value.values()), is_schema=True)
            elif of_schema or name == "schema" or not is_schema:
                yield from schemas_in(value, is_schema=of_schema or name == "schema")


def test_a_reader_of_the_document_understands_every_word_of_its_schemas() -> None:
    known = {*Draft202012Validator.VALIDATORS, "then", "else", "description", "title", "default", "examples"}
    found = [{*schema} for schema in schemas_in(document())]
    assert len(found) > 100
    assert set().union(*found) <= known


def test_every_get_of_the_api_has_an_answer_below() -> None:
    of_probes = {"/livez", "/readyz", "/metrics"}  # test_health.py
    assert set(WELL) | of_probes == {route.path for route in api_routes() if route.method == "GET"}


@pytest.mark.parametrize(("path", "query"), [(path, query) for path, queries in WELL.items() for query in queries])
def test_an_answer_is_not_as_it_is_described(services: WebServices, path: str, query: str) -> None:
    address = path.partition("/{")[0] + query
    route, _ = route_of(address.partition("?")[0])
    assert route.path == path
    assert route.about is not None
    answer = asked(services, address)
    assert (answer.status, answer.content_type) == (HTTPStatus.OK, "application/json"), answer.body
    fits(answer, route.about.answer)


@pytest.mark.parametrize(("address", "status"), REFUSED.items())
def test_a_refusal_names_field_and_remedy(services: WebServices, address: str, status: int) -> None:
    answer = asked(services, address)
    assert (answer.status.value, answer.content_type) == (status, PROBLEM_JSON)
    problem = fits(answer, PROBLEM)
    if status == 422:
        assert problem["field"] in address.partition("?")[2] or problem["field"] in ("name", "job_id", "before_ms")
        assert problem["remedy"]
    route, _ = route_of(address.partition("?")[0])
    assert route.about is not None
    assert status in route.about.statuses


@pytest.mark.parametrize("what", [*COUNTS, "audits"])
def test_pages_leave_rows_out_or_show_them_twice(services: WebServices, what: str) -> None:
    whole = json.loads(asked(services, f"/api/v1/{what}?limit=1000").body)
    assert whole["next_cursor"] is None
    assert len(whole["items"]) == {**COUNTS, "audits": 4}[what]
    found: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page: Any = json.loads(asked(services, f"/api/v1/{what}?limit=2&cursor={cursor}").body)
        found += page["items"]
        cursor = page["next_cursor"]
    assert found == whole["items"]


def test_a_cursor_of_one_listing_is_taken_by_another(services: WebServices) -> None:
    cursor = json.loads(asked(services, "/api/v1/candidates?limit=1").body)["next_cursor"]
    assert asked(services, f"/api/v1/candidates?cursor={cursor}").status is HTTPStatus.OK
    for damaged in (f"repairs?cursor={cursor}", f"candidates?cursor={cursor[:-4]}", f"candidates?cursor={cursor}AA"):
        answer = asked(services, f"/api/v1/{damaged}")
        assert answer.status is HTTPStatus.UNPROCESSABLE_ENTITY
        assert json.loads(answer.body)["field"] == "cursor"
