"""Errors as a status and a problem document (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from reconciler.contract.visible_text import visible
from reconciler.errors import (
    ChangedMeanwhile,
    ConfigurationError,
    InvalidValue,
    PermanentError,
    ReconcilerError,
    TransientError,
    UsageError,
)
from reconciler.web.exchange import WebRefusal, WebResponse, json_response, title_of

PROBLEM_JSON = "application/problem+json"
#: Pause before an unreachable dependency is asked again.
RETRY_AFTER_SECONDS = 10


def refusal_of(error: ReconcilerError) -> WebRefusal:
    """Makes the refusal for an error. The status depends on what the caller does next: correct the value, ask later, or
    call a person."""
    text = str(error)
    match error:
        case InvalidValue():
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            return WebRefusal(status, text, kind="invalid-value", field=error.field, remedy=error.remedy)
        case ChangedMeanwhile():
            return WebRefusal(HTTPStatus.CONFLICT, text, kind="changed", now=error.now)
        case TransientError():
            headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            return WebRefusal(HTTPStatus.SERVICE_UNAVAILABLE, text, kind="dependency-away", headers=headers)
        case UsageError():
            return WebRefusal(HTTPStatus.CONFLICT, text, kind="not-now")
        case PermanentError():
            return WebRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, text, kind="refused")
        case ConfigurationError():
            return WebRefusal(HTTPStatus.INTERNAL_SERVER_ERROR, text, kind="configuration")
        case _:
            return WebRefusal(HTTPStatus.INTERNAL_SERVER_ERROR, text, kind="bug")


@contextmanager
def job_of_the_path() -> Iterator[None]:
    """Answers 404 if the path has an unknown job's id. An unknown id in a body gets 422."""
    try:
        yield
    except InvalidValue as error:
        raise WebRefusal(HTTPStatus.NOT_FOUND, "no job has this id", kind="unknown-job") from error


def problem_document(refusal: WebRefusal, *, request_id: str) -> dict[str, object]:
    """Makes a document with the members of RFC 9457 and with `request_id`."""
    kind = refusal.kind if ":" in refusal.kind else f"urn:checkback-reconciler:problem:{refusal.kind}"
    document = {
        "type": kind,
        "title": title_of(refusal.status),
        "status": refusal.status.value,
        "detail": visible(refusal.detail),
        "request_id": request_id,
    }
    return document | refusal.more


def problem_response(refusal: WebRefusal, *, request_id: str) -> WebResponse:
    """Makes the answer with the document of a refusal."""
    document = problem_document(refusal, request_id=request_id)
    found = json_response(document, status=refusal.status, headers=refusal.headers)
    return WebResponse(status=found.status, content_type=PROBLEM_JSON, body=found.body, headers=found.headers)
