"""The table of all served paths, and the role that each needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from reconciler.web.acts.act import WebAct
from reconciler.web.acts.every import ACTS
from reconciler.web.api import listings, status
from reconciler.web.api.acts import description_of, over_api
from reconciler.web.api.audits import AUDITS, ONE_AUDIT
from reconciler.web.api.health import LIVE, METRICS, READY
from reconciler.web.api.messages import DOCTOR, MESSAGE
from reconciler.web.api.openapi import openapi_endpoint
from reconciler.web.console import (
    assets,
    audits,
    brakes,
    choosing,
    documents,
    health,
    jobs,
    login,
    messages,
    names,
    outcomes,
    overview,
)
from reconciler.web.console.acting import by_form
from reconciler.web.console.listings import LISTING_PAGES, listing
from reconciler.web.description import ApiEndpoint
from reconciler.web.roles import WebRole
from reconciler.web.route import Surface, WebRoute
from reconciler.web.services import Handler


def _get(path: str, name: str, endpoint: ApiEndpoint, role: WebRole = WebRole.VIEWER) -> WebRoute:
    return WebRoute(
        path=path, name=name, handler=endpoint.handler, surface=Surface.API, role=role, about=endpoint.about
    )


def _post(act: WebAct[Any]) -> WebRoute:
    return WebRoute(
        path=f"/api/v1{act.path}",
        name=f"post {act.name}",
        handler=over_api(act),
        surface=Surface.API,
        role=act.role,
        method="POST",
        about=description_of(act),
    )


def _form(act: WebAct[Any]) -> WebRoute:
    return WebRoute(
        path=act.path,
        name=f"form {act.name}",
        handler=by_form(act),
        surface=Surface.PAGE,
        role=act.role,
        method="POST",
    )


def _page(
    path: str, name: str, handler: Handler, role: WebRole = WebRole.VIEWER, method: Literal["GET", "POST"] = "GET"
) -> WebRoute:
    return WebRoute(path=path, name=name, handler=handler, surface=Surface.PAGE, role=role, method=method)


ROUTES: Sequence[WebRoute] = (
    _page("/", "overview", overview.show),
    _page("/overview/now", "overview-now", overview.show_now),
    _page("/overview/activity", "activity", overview.show_table),
    WebRoute(
        path="/overview/activity.json",
        name="activity-json",
        handler=overview.draw,
        surface=Surface.API,
        role=WebRole.VIEWER,
    ),
    *(_page(of.path, f"page of {of.what}", listing(of)) for of in LISTING_PAGES),
    _page("/brakes", "brakes", brakes.show),
    _page("/health", "health", health.show),
    _page("/audits", "audits", audits.show_all),
    _page("/audits/{name}", "audit", audits.show_one),
    _page("/audits/{name}/report", "report of an audit", audits.show_report),
    _page("/names", "names", names.show),
    _page("/messages", "messages", messages.show),
    _page("/messages/{name:path}", "message", messages.show),
    *(_page(path, "page of docs", documents.show) for path in ("/docs", "/docs/{page:path}")),
    _page("/view", "view", choosing.show, WebRole.ANYBODY),
    _page("/view/set", "view-set", choosing.choose, WebRole.ANYBODY),
    _page("/static/{digest}/{name:path}", "static", assets.serve, WebRole.ANYBODY),
    _page("/login", "login", login.show, WebRole.ANYBODY),
    _page("/login", "login", login.log_in, WebRole.ANYBODY, method="POST"),
    _page("/logout", "logout", login.log_out, WebRole.ANYBODY, method="POST"),
    _page("/jobs", "jobs", jobs.show_all),
    _page("/jobs/{job_id}", "job", jobs.show),
    _page("/acts/{act}/{key}", "outcome", outcomes.show, WebRole.OPERATOR),
    *map(_form, ACTS),
    replace(_get("/livez", "livez", LIVE, WebRole.ANYBODY), is_instant=True),
    _get("/readyz", "readyz", READY, WebRole.ANYBODY),
    _get("/metrics", "metrics", METRICS),
    _get("/api/v1/openapi.json", "openapi", openapi_endpoint(lambda: ROUTES)),
    _get("/api/v1/status", "status", status.ENDPOINT),
    *(_get(f"/api/v1/{name}", f"list {name}", endpoint) for name, endpoint in listings.ENDPOINTS.items()),
    _get("/api/v1/holds", "list holds", listings.HOLDS),
    _get("/api/v1/jobs", "list jobs", listings.JOBS),
    _get("/api/v1/jobs/{job_id}", "show job", listings.ONE_JOB),
    _get("/api/v1/audits", "list audits", AUDITS),
    _get("/api/v1/audits/{name}", "show audit", ONE_AUDIT),
    _get("/api/v1/doctor", "doctor", DOCTOR),
    *map(_post, ACTS),
    # This route comes last, because a business id may contain slashes and end like the path of an act.
    _get("/api/v1/messages/{name:path}", "explain", MESSAGE),
)
