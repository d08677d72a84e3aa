"""The ASGI application: one way for every request, from bytes to a handler and back.

Request id, name of the host, handler, problem document, headers: each request passes all of them, and a route
cannot leave one out.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from reconciler.errors import ReconcilerError
from reconciler.web.console.trouble import trouble_page
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.exposure import require_own_name
from reconciler.web.problems import problem_response, refusal_of
from reconciler.web.routes import ROUTES, Surface, WebRoute
from reconciler.web.services import WebServices

logger = logging.getLogger(__name__)

#: A client's own X-Request-ID is taken if it is this plain.
REQUEST_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
REQUEST_ID_LENGTH_MAX = 64
#: On every answer. Pages hold no inline script or style, and nothing of another host.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

Endpoint = Callable[[Request], Awaitable[Response]]


def build_application(services: WebServices, routes: Iterable[WebRoute] = ROUTES) -> Starlette:
    """Serves the table of routes below the prefix."""
    served = [Route(r.path, _endpoint(services, r), methods=["GET"], name=r.name) for r in routes]

    async def not_found(request: Request, error: Exception) -> Response:
        status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        below = request.url.path.removeprefix(services.prefix)
        surface = Surface.API if below.startswith("/api/") else Surface.PAGE
        refusal = WebRefusal(status, f"nothing is served for {request.method} here")
        wanted = _request_of(request)
        return _framework_response(_told(services, wanted, refusal, surface), wanted)

    return Starlette(
        routes=[Mount(services.prefix, routes=served)] if services.prefix else served,
        exception_handlers={404: not_found, 405: not_found},
    )


def _endpoint(services: WebServices, route: WebRoute) -> Endpoint:
    async def serve(request: Request) -> Response:
        wanted = _request_of(request)
        answer = await run_in_threadpool(answer_of, services, route, wanted)
        return _framework_response(answer, wanted)

    return serve


def answer_of(services: WebServices, route: WebRoute, request: WebRequest) -> WebResponse:
    """The whole way of one request, in a thread. Raises nothing."""
    try:
        require_own_name(request)
        return route.handler(services, request)
    except WebRefusal as refusal:
        return _told(services, request, refusal, route.surface)
    except ReconcilerError as error:
        found = refusal_of(error)
        if found.kind == "bug":
            logger.exception("web_request_failed", extra={"request_id": request.request_id, "route": route.name})
        return _told(services, request, found, route.surface)
    except Exception:  # the last line of defence: a bug is told by its number, and its text stays in the log
        logger.exception("web_request_failed", extra={"request_id": request.request_id, "route": route.name})
        detail = f"this is a bug; the log has it under request_id {request.request_id}"
        bug = WebRefusal(HTTPStatus.INTERNAL_SERVER_ERROR, detail, kind="bug")
        return _told(services, request, bug, route.surface)


def _told(services: WebServices, request: WebRequest, refusal: WebRefusal, surface: Surface) -> WebResponse:
    if surface is Surface.PAGE:
        return trouble_page(services, request, refusal)
    return problem_response(refusal, request_id=request.request_id)


def _request_of(request: Request) -> WebRequest:
    return WebRequest(
        headers=dict(request.headers),
        request_id=_request_id(request.headers.get("x-request-id", "")),
    )


def _request_id(given: str) -> str:
    is_plain = 0 < len(given) <= REQUEST_ID_LENGTH_MAX and REQUEST_ID_CHARACTERS.issuperset(given)
    return given if is_plain else secrets.token_hex(8)


def _framework_response(answer: WebResponse, request: WebRequest) -> Response:
    headers = HEADERS | {"X-Request-ID": request.request_id} | dict(answer.headers)
    response = Response(answer.body, status_code=answer.status.value, media_type=None, headers=headers)
    response.headers["Content-Type"] = answer.content_type
    return response
