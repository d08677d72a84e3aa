"""/api/v1/openapi.json: one OpenAPI 3.1 document from the descriptions of the routes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from reconciler.web.description import (
    BAD_PARAMETER,
    TEXT,
    ApiEndpoint,
    Description,
    Parameter,
    values_of,
)
from reconciler.web.excerpts import TEXT_CHARACTERS_MAX
from reconciler.web.exchange import JSON, WebRequest, WebResponse, json_response
from reconciler.web.problems import PROBLEM_JSON
from reconciler.web.roles import WebRole
from reconciler.web.route import WebRoute
from reconciler.web.services import WebServices

OPENAPI_VERSION = "3.1.0"
#: Version of the API, which is independent of the release. Later releases only add to /api/v1.
API_VERSION = "1"
PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "description": "RFC 9457. Kinds of problems have more members.",
    "properties": {
        "type": {"type": "string", "description": "about:blank, or urn:checkback-reconciler:problem:KIND."},
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, with the value."},
        "request_id": {"type": "string", "description": "In the log, and in the header X-Request-ID."},
        "field": {"type": "string", "description": "Place of an invalid value."},
        "remedy": {"type": "string", "description": "What to give in place of an invalid value."},
    },
    "required": ["type", "title", "status", "detail", "request_id"],
}
_SECURITY = {
    "token": {"type": "http", "scheme": "bearer", "description": "`reconciler web token add`."},
    "session": {"type": "apiKey", "in": "cookie", "name": "session", "description": "Of a page of the console."},
}
#: Mark in a route's path for a value that may contain slashes.
_PLACE = re.compile(r"\{(\w+):path\}")


def openapi_document(routes: Iterable[WebRoute], *, prefix: str) -> dict[str, Any]:
    """Makes the document of all routes that have a description."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.about is not None:
            operation = _operation(route.name, route.role, route.about)
            paths.setdefault(_PLACE.sub(r"{\1}", route.path), {})[route.method.lower()] = operation
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Check-back reconciler",
            "version": API_VERSION,
            "description": (
                "What the command line tells and does. Times are milliseconds UTC since 1970. Of a text with more than "
                f"{TEXT_CHARACTERS_MAX} characters the beginning is told, and how long it is."
            ),
        },
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "responses": {
                "Problem": {
                    "description": "It is not served, and why.",
                    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
            "securitySchemes": _SECURITY,
        },
    }


def _operation(name: str, role: WebRole, about: Description) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", name),
        "summary": about.summary,
        "parameters": list(map(_parameter, about.parameters)),
        "responses": dict(_responses(about)),
        "security": [{}] if role is WebRole.ANYBODY else [{"token": []}, {"session": []}, {}],
        "x-role": role.word,
    }
    if about.more:
        operation["description"] = about.more
    if about.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": about.body}}}
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.is_required,
        "description": parameter.doc,
        "schema": parameter.schema,
    }


def _responses(about: Description) -> Iterator[tuple[str, dict[str, Any]]]:
    for status, meaning in about.statuses.items():
        if status in about.answers_with:
            yield str(status), {"description": meaning, "content": {about.content_type: {"schema": about.answer}}}
        else:
            problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
            yield str(status), {"description": meaning, "content": {PROBLEM_JSON: problem}}
    yield "default", {"$ref": "#/components/responses/Problem"}


def openapi_endpoint(routes: Callable[[], Iterable[WebRoute]]) -> ApiEndpoint:
    """Makes the endpoint that serves the document of all routes. The document describes this endpoint, too."""

    def show(services: WebServices, request: WebRequest) -> WebResponse:
        values_of((), request)
        return json_response(openapi_document(routes(), prefix=services.prefix))

    return ApiEndpoint(
        handler=show,
        about=Description(
            summary="This document",
            answer={"type": "object"},
            statuses={200: "OpenAPI 3.1", **BAD_PARAMETER},
        ),
    )
