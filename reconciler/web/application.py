"""The ASGI application: every request takes the same way, from bytes to a handler and back.

The steps are: request id, name of the host, visitor, role, handler, problem document, headers. Each request passes all
steps, and no route can skip one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from reconciler.errors import ReconcilerError
from reconciler.web.console.login import to_login
from reconciler.web.console.trouble import trouble_page
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse, see_other
from reconciler.web.problems import problem_response, refusal_of
from reconciler.web.roles import WebRole
from reconciler.web.route import Surface, WebRoute
from reconciler.web.routes import ROUTES
from reconciler.web.services import WebServices

logger = logging.getLogger(__name__)

#: Characters that a client's X-Request-ID may have. An id with other characters is replaced.
REQUEST_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
REQUEST_ID_LENGTH_MAX = 64
#: Limits of what the event loop reads before any check. Our pages and programs need a tenth of these limits.
QUERY_BYTES_MAX = 16_384
QUERY_FIELDS_MAX = 500
HEADERS_MAX = 100
COOKIE_BYTES_MAX = 8_192
#: A bulk selection of some ten thousand keys fits.
BODY_BYTES_MAX = 1 << 20
#: Limit for visitors who have not logged in, for example for a login.
STRANGERS_BODY_BYTES_MAX = 32 << 10
BODY_SECONDS_MAX = 10.0
#: If a request has both headers, a proxy in front may see its end elsewhere. So the connection ends with the answer,
#: and no part of the body is taken for another client's request (RFC 9112, 6.1).
_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})
#: Headers of every answer. Pages have no inline script or style, and load nothing from another host.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, a browser sends a form without Origin, but a form needs Origin (access/forgery.py).
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


def build_application(services: WebServices, routes: Iterable[WebRoute] = ROUTES) -> Starlette:
    """Builds an application that serves the table of routes below the prefix."""
    by_path = _by_path(routes)
    served = [
        Route(services.prefix + path, _Endpoint(services, by_method), methods=list(by_method))
        for path, by_method in by_path.items()
    ]

    async def not_found(request: Request, error: Exception) -> Response:
        status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        wanted = _request_of(services, request, is_bare=_beyond_bounds(request.scope) is not None)
        surface = Surface.API if wanted.path.startswith("/api/") else Surface.PAGE
        taken = {
            method for one in served if one.path_regex.match(request.scope["path"]) for method in one.methods or ()
        }
        headers = {"Allow": ", ".join(sorted(taken))} if taken else {}
        refusal = WebRefusal(status, f"nothing is served for {request.method} here", headers=headers)
        answer = _unserved(services, wanted, refusal, surface)
        own = wanted.path.rstrip("/") or "/"
        if answer.status is HTTPStatus.NOT_FOUND and wanted.method in {"GET", "HEAD"} and "GET" in by_path.get(own, ()):
            query = f"?{urlencode(wanted.query, doseq=True)}" if wanted.query else ""
            answer = see_other(services.prefix + own + query)
        return _framework_response(services, answer, wanted, request.scope)

    application = Starlette(routes=served, exception_handlers={404: not_found, 405: not_found})
    # Starlette's redirect would come before every check, and would lead to any host that the request names.
    application.router.redirect_slashes = False
    return application


def _by_path(routes: Iterable[WebRoute]) -> dict[str, dict[str, WebRoute]]:
    found: dict[str, dict[str, WebRoute]] = {}
    for route in routes:
        found.setdefault(route.path, {})[route.method] = route
    return found


class _Endpoint:
    """The routes of one path, by method. For a missing method, Starlette tries later paths that fit, and then answers
    405."""

    def __init__(self, services: WebServices, by_method: Mapping[str, WebRoute]) -> None:
        self._services = services
        self._by_method = by_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = self._by_method["GET" if request.method == "HEAD" else request.method]
        refused = _beyond_bounds(scope)
        wanted = _request_of(self._services, request, is_bare=refused is not None)
        try:
            if refused is not None:
                raise refused
            is_for_all = route.role is WebRole.ANYBODY
            body = await _body_of(request, STRANGERS_BODY_BYTES_MAX if is_for_all else BODY_BYTES_MAX)
            wanted = replace(wanted, body=body)
        except WebRefusal as refusal:
            answer = _unserved(self._services, wanted, refusal, route.surface)
        else:
            if route.is_instant:
                answer = route.handler(self._services, wanted)
            else:
                answer = await run_in_threadpool(answer_of, self._services, route, wanted)
        await _framework_response(self._services, answer, wanted, scope)(scope, receive, send)


async def _body_of(request: Request, bytes_max: int) -> bytes:
    """Reads the body. Raises WebRefusal if it is too large, takes too long, or breaks off."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    detail = f"the body has more than {bytes_max} bytes"
                    raise WebRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    except TimeoutError:
        detail = f"the body was not there after {BODY_SECONDS_MAX:g} seconds"
        raise WebRefusal(HTTPStatus.REQUEST_TIMEOUT, detail) from None
    except ClientDisconnect:  # nobody reads the answer
        raise WebRefusal(HTTPStatus.BAD_REQUEST, "the body broke off") from None
    return bytes(body)


def answer_of(services: WebServices, route: WebRoute, request: WebRequest) -> WebResponse:
    """Takes one request from its bytes to its answer, in a thread. Raises nothing."""
    try:
        if not route.is_health:
            services.access.require_way(request)
        request = replace(request, visitor=services.access.visitors.visitor_of(request))
        services.access.require_admitted(request, route.role)
        return route.handler(services, request)
    except WebRefusal as refusal:
        _log_refusal(services, route, request, refusal)
        return _told(services, request, refusal, route.surface)
    except ReconcilerError as error:
        found = refusal_of(error)
        if found.kind == "bug":
            logger.exception("web_request_failed", extra={"request_id": request.request_id, "route": route.name})
        return _told(services, request, found, route.surface)
    except Exception:  # the visitor gets the number of a bug, and the log gets its text
        logger.exception("web_request_failed", extra={"request_id": request.request_id, "route": route.name})
        detail = f"this is a bug; the log has it under request_id {request.request_id}"
        bug = WebRefusal(HTTPStatus.INTERNAL_SERVER_ERROR, detail, kind="bug")
        return _told(services, request, bug, route.surface)


def _log_refusal(services: WebServices, route: WebRoute, request: WebRequest, refusal: WebRefusal) -> None:
    told = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST}
    if refusal.status in told and refusal.kind != "login-needed":
        address = services.access.visitors.proxies.client_of(request)
        about = {"route": route.name, "kind": refusal.kind, "user": request.visitor.name, "address": address}
        logger.warning("web_refused", extra=about | {"request_id": request.request_id})


def _unserved(services: WebServices, request: WebRequest, refusal: WebRefusal, surface: Surface) -> WebResponse:
    """Answers a request that was refused before any handler. If the request came under a foreign name or not from the
    proxy, the answer gives that reason instead."""
    try:
        services.access.require_way(request)
    except WebRefusal as foreign:
        refusal = foreign
    return _told(services, request, refusal, surface)


def _told(services: WebServices, request: WebRequest, refusal: WebRefusal, surface: Surface) -> WebResponse:
    if surface is Surface.PAGE:
        if refusal.status is HTTPStatus.UNAUTHORIZED:
            return to_login(services, request)
        return trouble_page(services, request, refusal)
    return problem_response(refusal, request_id=request.request_id)


def _beyond_bounds(scope: Scope) -> WebRefusal | None:
    """Returns the refusal of a request whose query, headers or cookies are above the limits."""
    if len(scope["query_string"]) > QUERY_BYTES_MAX or scope["query_string"].count(b"&") >= QUERY_FIELDS_MAX:
        detail = f"the query has more than {QUERY_BYTES_MAX} bytes or {QUERY_FIELDS_MAX} fields"
        return WebRefusal(HTTPStatus.REQUEST_URI_TOO_LONG, detail)
    cookies = sum(len(value) for name, value in scope["headers"] if name == b"cookie")
    if len(scope["headers"]) > HEADERS_MAX or cookies > COOKIE_BYTES_MAX:
        detail = f"there are more than {HEADERS_MAX} headers, or {COOKIE_BYTES_MAX} bytes of cookies"
        return WebRefusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
    return None


def _request_of(services: WebServices, request: Request, *, is_bare: bool) -> WebRequest:
    """Makes the request. `is_bare`: the request is above the limits, so it gets no query, no cookies, and only the
    first headers."""
    if is_bare:
        headers = [(name, value) for name, value in request.scope["headers"] if name != b"cookie"][:HEADERS_MAX]
        request = Request({**request.scope, "query_string": b"", "headers": headers})
    return WebRequest(
        method=request.method,
        path=request.scope["path"].removeprefix(services.prefix),
        headers=_headers_of(request),
        request_id=_request_id(request.headers.get("x-request-id", "")),
        peer=request.client.host if request.client is not None else "",
        parts={name: str(value) for name, value in request.path_params.items()},
        query=parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True),
        cookies=request.cookies,
    )


def _headers_of(request: Request) -> dict[str, str]:
    """Returns the headers. If a header came twice, both values are joined (RFC 9110, 5.3). A joined host or user is
    unusable."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _request_id(given: str) -> str:
    is_plain = 0 < len(given) <= REQUEST_ID_LENGTH_MAX and REQUEST_ID_CHARACTERS.issuperset(given)
    return given if is_plain else secrets.token_hex(8)


def _framework_response(services: WebServices, answer: WebResponse, request: WebRequest, scope: Scope) -> Response:
    hsts_seconds = services.settings.web.hsts_seconds
    over_tls_only = {"Strict-Transport-Security": f"max-age={hsts_seconds}"} if hsts_seconds else {}
    headers = HEADERS | over_tls_only | {"X-Request-ID": request.request_id} | dict(answer.headers)
    response = Response(answer.body, status_code=answer.status.value, media_type=None, headers=headers)
    response.headers["Content-Type"] = answer.content_type
    if {name for name, _ in scope["headers"]} >= _LENGTHS:
        response.headers["Connection"] = "close"
    for cookie in answer.cookies:
        response.headers.append("Set-Cookie", cookie)
    return response
