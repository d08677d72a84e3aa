"""POST /api/v1/...: acts of programs, each under an idempotency key that the program makes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from reconciler.web.acts.act import WebAct
from reconciler.web.acts.once import done_once
from reconciler.web.exchange import Handler, WebRequest, WebResponse, json_response
from reconciler.web.services import WebServices

KEY_HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"


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
