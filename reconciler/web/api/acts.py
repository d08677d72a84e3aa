"""POST /api/v1/...: acts of programs, each under an idempotency key that the program makes."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from reconciler.web.acts.act import WebAct
from reconciler.web.acts.once import done_once
from reconciler.web.api.description import Description, Parameter
from reconciler.web.exchange import Handler, WebRequest, WebResponse, json_response
from reconciler.web.services import WebServices

KEY_HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"
_PLACE = re.compile(r"\{(\w+)")


_KEY = Parameter(
    name=KEY_HEADER,
    doc="1 to 255 visible ASCII characters, new for each request, for example a UUID.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    where="header",
    is_required=True,
)
_STATUSES = {
    200: "it is done",
    202: "it is a job, whose address is in Location",
    403: "the visitor may not do this",
    409: "not now: the same key is under way, or what it needs is not so",
    422: "a field has a value that cannot work, or the key was used for another request",
    503: "a dependency is away",
}


def description_of(act: WebAct[Any], path: str) -> Description:
    """Of the route of an act. What is special to it stands in docs/web.md."""
    places = (Parameter(name=name, doc="Of the path.", where="path", is_required=True) for name in _PLACE.findall(path))
    return Description(
        summary=act.summary.rstrip("."),
        answer={"type": "object"},
        parameters=(*places, _KEY),
        body=act.fields.model_json_schema(),
        statuses=_STATUSES,
        answers_with=(HTTPStatus.OK, HTTPStatus.ACCEPTED),
    )


def over_api(act: WebAct[Any]) -> Handler:
    """The handler of an act: a JSON object in, its result out."""

    def handle(services: WebServices, request: WebRequest) -> WebResponse:
        key = request.headers.get(KEY_HEADER.lower(), "")
        done = done_once(services, act, request, request.document(), key=key)
        headers = {REPLAYED_HEADER: "true"} if done.is_replayed else {}
        job = done.result.document.get("job")
        if done.result.status is HTTPStatus.ACCEPTED and isinstance(job, dict):
            headers["Location"] = f"{services.prefix}/api/v1/jobs/{job['job_id']}"
        return json_response(done.result.document, status=done.result.status, headers=headers)

    return handle
