"""The table of everything that is served, and who may ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from reconciler.web.access.roles import WebRole
from reconciler.web.acts.act import WebAct
from reconciler.web.acts.bodies import OPEN_BODY
from reconciler.web.acts.brakes import HOLD, LIFT
from reconciler.web.acts.incident import ACKNOWLEDGE
from reconciler.web.acts.jobs import CANCEL, REBUILD
from reconciler.web.acts.repairing import DISMISS, REPAIR
from reconciler.web.api import listings, status
from reconciler.web.api.acts import description_of, over_api
from reconciler.web.api.audits import AUDITS, ONE_AUDIT
from reconciler.web.api.description import ApiEndpoint, Description
from reconciler.web.api.health import LIVE, METRICS, READY
from reconciler.web.api.messages import DOCTOR, MESSAGE
from reconciler.web.api.openapi import OPENAPI
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
from reconciler.web.console.acting import Completion, by_form, require_typed_number, since_and_word
from reconciler.web.console.listings import LISTING_PAGES, listing
from reconciler.web.exchange import Handler


class Surface(StrEnum):
    """To whom a refusal is told, and so in which form."""

    API = "api"
    PAGE = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRoute:
    """One path."""

    #: Below the prefix.
    path: str
    name: str
    handler: Handler
    surface: Surface
    role: WebRole
    #: POST changes something, and is proven to come from a page or a program of the visitor's own will.
    method: Literal["GET", "POST"] = "GET"
    #: What it takes and answers; None for pages.
    about: Description | None = None
    #: Asks nobody and nothing, whoever wants to know: it waits for no thread.
    is_instant: bool = False

    @property
    def is_health(self) -> bool:
        """A probe asks by whatever address it has, and past the proxy."""
        return self.surface is Surface.API and self.role is WebRole.ANYBODY


def _get(path: str, name: str, endpoint: ApiEndpoint, role: WebRole = WebRole.VIEWER) -> WebRoute:
    return WebRoute(
        path=path, name=name, handler=endpoint.handler, surface=Surface.API, role=role, about=endpoint.about
    )


def _post(path: str, act: WebAct[Any], role: WebRole) -> WebRoute:
    return WebRoute(
        path=path,
        name=f"post {act.name}",
        handler=over_api(act),
        surface=Surface.API,
        role=role,
        method="POST",
        about=description_of(act, path),
    )


def _form(path: str, act: WebAct[Any], role: WebRole, complete: Completion | None = None) -> WebRoute:
    return WebRoute(
        path=path,
        name=f"form {act.name}",
        handler=by_form(act, complete),
        surface=Surface.PAGE,
        role=role,
        method="POST",
    )


ROUTES: Sequence[WebRoute] = (
    WebRoute(path="/", name="overview", handler=overview.show, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(
        path="/overview/now", name="overview-now", handler=overview.show_now, surface=Surface.PAGE, role=WebRole.VIEWER
    ),
    WebRoute(
        path="/overview/activity",
        name="activity",
        handler=overview.show_table,
        surface=Surface.PAGE,
        role=WebRole.VIEWER,
    ),
    WebRoute(
        path="/overview/activity.json",
        name="activity-json",
        handler=overview.draw,
        surface=Surface.API,
        role=WebRole.VIEWER,
    ),
    *(
        WebRoute(
            path=of.path, name=f"page of {of.what}", handler=listing(of), surface=Surface.PAGE, role=WebRole.VIEWER
        )
        for of in LISTING_PAGES
    ),
    WebRoute(path="/brakes", name="brakes", handler=brakes.show, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(path="/health", name="health", handler=health.show, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(path="/audits", name="audits", handler=audits.show_all, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(path="/audits/{name}", name="audit", handler=audits.show_one, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(
        path="/audits/{name}/report",
        name="report of an audit",
        handler=audits.show_report,
        surface=Surface.PAGE,
        role=WebRole.VIEWER,
    ),
    WebRoute(path="/names", name="names", handler=names.show, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(path="/messages", name="messages", handler=messages.show, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(
        path="/messages/{name:path}", name="message", handler=messages.show, surface=Surface.PAGE, role=WebRole.VIEWER
    ),
    *(
        WebRoute(path=path, name="page of docs", handler=documents.show, surface=Surface.PAGE, role=WebRole.VIEWER)
        for path in ("/docs", "/docs/{page:path}")
    ),
    WebRoute(path="/view", name="view", handler=choosing.show, surface=Surface.PAGE, role=WebRole.ANYBODY),
    WebRoute(path="/view/set", name="view-set", handler=choosing.choose, surface=Surface.PAGE, role=WebRole.ANYBODY),
    WebRoute(
        path="/static/{digest}/{name:path}",
        name="static",
        handler=assets.serve,
        surface=Surface.PAGE,
        role=WebRole.ANYBODY,
    ),
    WebRoute(path="/login", name="login", handler=login.show, surface=Surface.PAGE, role=WebRole.ANYBODY),
    WebRoute(
        path="/login", name="login", handler=login.log_in, surface=Surface.PAGE, role=WebRole.ANYBODY, method="POST"
    ),
    WebRoute(
        path="/logout", name="logout", handler=login.log_out, surface=Surface.PAGE, role=WebRole.ANYBODY, method="POST"
    ),
    WebRoute(path="/jobs", name="jobs", handler=jobs.show_all, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(path="/jobs/{job_id}", name="job", handler=jobs.show, surface=Surface.PAGE, role=WebRole.VIEWER),
    WebRoute(
        path="/acts/{act}/{key}", name="outcome", handler=outcomes.show, surface=Surface.PAGE, role=WebRole.OPERATOR
    ),
    _form("/repairs", REPAIR, WebRole.OPERATOR, require_typed_number),
    _form("/holds", HOLD, WebRole.OPERATOR),
    _form("/holds/{topic}/lift", LIFT, WebRole.OPERATOR),
    _form("/dismissals", DISMISS, WebRole.OPERATOR),
    _form("/acknowledgements", ACKNOWLEDGE, WebRole.OPERATOR),
    _form("/rebuilds", REBUILD, WebRole.ADMIN, since_and_word),
    _form("/jobs/{job_id}/cancel", CANCEL, WebRole.OPERATOR),
    _form("/messages/{unique_key}/body", OPEN_BODY, WebRole.OPERATOR),
    replace(_get("/livez", "livez", LIVE, WebRole.ANYBODY), is_instant=True),
    _get("/readyz", "readyz", READY, WebRole.ANYBODY),
    _get("/metrics", "metrics", METRICS),
    _get("/api/v1/openapi.json", "openapi", OPENAPI),
    _get("/api/v1/status", "status", status.ENDPOINT),
    _get("/api/v1/candidates", "list candidates", listings.CANDIDATES),
    _get("/api/v1/repairs", "list repairs", listings.REPAIRS),
    _get("/api/v1/rounds", "list rounds", listings.ROUNDS),
    _get("/api/v1/outages", "list outages", listings.OUTAGES),
    _get("/api/v1/quarantine", "list quarantine", listings.QUARANTINE),
    _get("/api/v1/actions", "list actions", listings.ACTIONS),
    _get("/api/v1/floors", "list floors", listings.FLOORS),
    _get("/api/v1/holds", "list holds", listings.HOLDS),
    _get("/api/v1/jobs", "list jobs", listings.JOBS),
    _get("/api/v1/jobs/{job_id}", "show job", listings.ONE_JOB),
    _get("/api/v1/audits", "list audits", AUDITS),
    _get("/api/v1/audits/{name}", "show audit", ONE_AUDIT),
    _get("/api/v1/doctor", "doctor", DOCTOR),
    _post("/api/v1/repairs", REPAIR, WebRole.OPERATOR),
    _post("/api/v1/holds", HOLD, WebRole.OPERATOR),
    _post("/api/v1/holds/{topic}/lift", LIFT, WebRole.OPERATOR),
    _post("/api/v1/dismissals", DISMISS, WebRole.OPERATOR),
    _post("/api/v1/acknowledgements", ACKNOWLEDGE, WebRole.OPERATOR),
    _post("/api/v1/rebuilds", REBUILD, WebRole.ADMIN),
    _post("/api/v1/jobs/{job_id}/cancel", CANCEL, WebRole.OPERATOR),
    _post("/api/v1/messages/{unique_key}/body", OPEN_BODY, WebRole.OPERATOR),
    # A business id may hold slashes, and end as the path of an act does.
    _get("/api/v1/messages/{name:path}", "explain", MESSAGE),
)
