"""Everything that is served, and who may ask for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest

from reconciler.web.exchange import WebResponse
from reconciler.web.roles import WebRole
from reconciler.web.route import Surface, WebRoute
from reconciler.web.routes import ROUTES
from tests.unit.web.web_world import WebWorld, with_three_users

#: A line a route: method, path, and the least role. A change of this table is a change of who may do what.
WHO_MAY = """
GET  /                VIEWER
GET  /livez           ANYBODY
GET  /readyz          ANYBODY
GET  /metrics         VIEWER
GET  /api/v1/status   VIEWER
GET  /api/v1/openapi.json  VIEWER
GET  /api/v1/candidates  VIEWER
GET  /api/v1/repairs  VIEWER
GET  /api/v1/rounds  VIEWER
GET  /api/v1/outages  VIEWER
GET  /api/v1/quarantine  VIEWER
GET  /api/v1/actions  VIEWER
GET  /api/v1/floors  VIEWER
GET  /api/v1/holds  VIEWER
GET  /api/v1/jobs  VIEWER
GET  /api/v1/jobs/{job_id}  VIEWER
GET  /api/v1/audits  VIEWER
GET  /api/v1/audits/{name}  VIEWER
GET  /api/v1/doctor  VIEWER
GET  /api/v1/messages/{name:path}  VIEWER
POST /api/v1/repairs  OPERATOR
POST /api/v1/holds    OPERATOR
POST /api/v1/holds/{topic}/lift  OPERATOR
POST /api/v1/dismissals  OPERATOR
POST /api/v1/acknowledgements  OPERATOR
POST /api/v1/rebuilds    ADMIN
POST /api/v1/jobs/{job_id}/cancel  OPERATOR
POST /api/v1/messages/{unique_key}/body  OPERATOR
POST /repairs            OPERATOR
POST /holds              OPERATOR
POST /holds/{topic}/lift  OPERATOR
POST /dismissals         OPERATOR
POST /acknowledgements   OPERATOR
POST /rebuilds           ADMIN
POST /jobs/{job_id}/cancel  OPERATOR
POST /messages/{unique_key}/body  OPERATOR
GET  /acts/{act}/{key}   OPERATOR
GET  /jobs               VIEWER
GET  /jobs/{job_id}      VIEWER
GET  /overview/now    VIEWER
GET  /overview/activity       VIEWER
GET  /overview/activity.json  VIEWER
GET  /losses          VIEWER
GET  /repairs         VIEWER
GET  /rounds          VIEWER
GET  /outages         VIEWER
GET  /quarantine      VIEWER
GET  /actions         VIEWER
GET  /brakes          VIEWER
GET  /health          VIEWER
GET  /audits          VIEWER
GET  /audits/{name}   VIEWER
GET  /audits/{name}/report  VIEWER
GET  /names           VIEWER
GET  /messages        VIEWER
GET  /messages/{name:path}  VIEWER
GET  /docs            VIEWER
GET  /docs/{page:path}  VIEWER
GET  /view            ANYBODY
GET  /view/set        ANYBODY
GET  /static/{digest}/{name:path}  ANYBODY
GET  /login           ANYBODY
POST /login           ANYBODY
POST /logout          ANYBODY
"""
TABLE = {(method, path): WebRole[role] for method, path, role in (line.split() for line in WHO_MAY.split("\n") if line)}
ROLES = [role.name.lower() for role in WebRole]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebWorld]:
    folder = tmp_path_factory.mktemp("users")
    world = WebWorld(folder, users_file=str(with_three_users(folder)))
    with world.connections:
        yield world


@pytest.fixture(scope="module")
def cookies(world: WebWorld) -> dict[str, str]:
    return {"anybody": ""} | {name: world.cookie_of(name) for name in ROLES if name != "anybody"}


def test_a_route_that_nobody_thought_about_is_not_served() -> None:
    assert {(route.method, route.path): route.role for route in ROUTES} == TABLE


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_nobody_does_more_than_the_role_allows(
    route: WebRoute, role: str, world: WebWorld, cookies: dict[str, str]
) -> None:
    served = WebResponse(body=b"served")
    asked = replace(route, handler=lambda _services, _request: served)
    cookie = cookies[role]
    answer = world.ask(asked, cookie=cookie, form={"csrf_token": world.csrf_token(cookie)})
    if WebRole[role.upper()] >= TABLE[route.method, route.path]:
        assert answer is served
    elif role == "anybody" and route.surface is Surface.PAGE:
        assert answer.status is HTTPStatus.SEE_OTHER
        assert answer.headers["Location"].startswith("/login")
    elif role == "anybody":
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (HTTPStatus.UNAUTHORIZED, "Bearer")
    else:
        assert answer.status is HTTPStatus.FORBIDDEN
        needed = route.role.name.lower().encode()
        assert needed in answer.body
        if route.surface is Surface.API:
            assert json.loads(answer.body)["role"] == needed.decode()


def test_without_users_this_machine_looks_and_does_not_act(tmp_path: Path) -> None:
    world = WebWorld(tmp_path)
    with world.connections:
        for route in ROUTES:
            asked = replace(route, handler=lambda _services, _request: WebResponse(body=b"served"))
            answer = world.ask(asked, form={"csrf_token": world.csrf_token()})
            expected = HTTPStatus.OK if route.role <= WebRole.VIEWER else HTTPStatus.FORBIDDEN
            assert answer.status is expected, route
