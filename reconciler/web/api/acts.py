"""POST /api/v1/...: acts of programs. Each request has an idempotency key that the program chooses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from reconciler.contract.unique_key import UNIQUE_KEY_PATTERN
from reconciler.web.acts.act import WebAct
from reconciler.web.acts.once import KEY_CHARACTERS_MAX, KEY_HEADER, done_once
from reconciler.web.description import (
    Description,
    Parameter,
    Schema,
    nullable,
)
from reconciler.web.exchange import WebRequest, WebResponse, json_response
from reconciler.web.services import Handler, WebServices

REPLAYED_HEADER = "Idempotency-Replayed"
_PLACE = re.compile(r"\{(\w+)")

_KEY = Parameter(
    name=KEY_HEADER,
    doc="1 to 255 visible ASCII characters, new for each request, for example a UUID. The same request again gets the "
    f"first one's answer, and `{REPLAYED_HEADER}: true`.",
    schema={"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX, "pattern": "^[!-~]+$"},
    where="header",
    is_required=True,
)
#: Name of a place in a path -> schema of the values of this place.
_PLACES: Mapping[str, Schema] = {
    "topic": {"type": "string", "pattern": "^[%|a-zA-Z0-9_-]{1,127}$"},
    "job_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "unique_key": {"type": "string", "pattern": f"^{UNIQUE_KEY_PATTERN}$"},
}
_REFUSED = {
    400: f"{KEY_HEADER} is missing, or the body is no JSON",
    403: "the visitor may not do this",
    409: "the same key is under way (with Retry-After), nobody knows what came of it, or a precondition does not hold",
    422: "a field has a value that cannot work, or the key was used for another request",
    503: "a dependency is away: the key is free again, unless the act may have been done and must not be done twice",
}


def description_of(act: WebAct[Any]) -> Description:
    """Describes the route of an act."""
    places = (
        Parameter(name=name, doc="Part of the path.", schema=_PLACES[name], where="path", is_required=True)
        for name in _PLACE.findall(act.path)
    )
    return Description(
        summary=act.summary.rstrip("."),
        answer=act.answer,
        parameters=(*places, _KEY),
        body=_plain(act.fields.model_json_schema()),
        statuses=dict(sorted({**_REFUSED, **act.statuses}.items())),
        answers_with=tuple(status for status in act.statuses if status < HTTPStatus.BAD_REQUEST),
        more="[More](console.md#acts).",
    )


def _plain(schema: Any) -> Any:
    """Returns pydantic's schema without titles that repeat names. `null` becomes one of the types."""
    if isinstance(schema, list):
        return list(map(_plain, schema))
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(value) for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    kinds = found.pop("anyOf", None)
    if kinds is None:
        return found
    (one,) = [kind for kind in kinds if kind["type"] != "null"]
    found.pop("default", None)  # a field whose default is null may also be left out
    return {**found, **nullable(one)}


def over_api(act: WebAct[Any]) -> Handler:
    """Makes the handler of an act. The handler takes a JSON object and returns the result."""

    def handle(services: WebServices, request: WebRequest) -> WebResponse:
        key = request.headers.get(KEY_HEADER.lower(), "")
        done = done_once(services, act, request, request.document(), key=key)
        headers = {REPLAYED_HEADER: "true"} if done.is_replayed else {}
        job = done.result.document.get("job")
        if done.result.status is HTTPStatus.ACCEPTED and isinstance(job, dict):
            headers["Location"] = f"{services.prefix}/api/v1/jobs/{job['job_id']}"
        # A result that is not kept is a message's body, which the act has cut already.
        is_whole = not act.keeps_result
        return json_response(done.result.document, status=done.result.status, headers=headers, is_whole=is_whole)

    return handle
