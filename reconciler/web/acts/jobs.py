"""Acts that are jobs, and the end of one."""

from __future__ import annotations

from http import HTTPStatus

from pydantic import Field

from reconciler.commands.acts.jobs import cancel_job, job_document, place_rebuild
from reconciler.web.acts.act import ActRequest, ActResult, NoFields, Reasoned, WebAct
from reconciler.web.problems import job_of_the_path
from reconciler.web.services import WebServices


class RebuildFields(Reasoned):
    """What is scanned."""

    since_ms: int | None = Field(
        default=None,
        ge=0,
        le=2**63 - 1,
        description="Inbox rows since this time, which has passed (ms, UTC); none: since the open outage began.",
    )


def _rebuild(services: WebServices, asked: ActRequest, fields: RebuildFields) -> ActResult:
    job = place_rebuild(
        services.connections, since_ms=fields.since_ms, reason=fields.reason, by=asked.by, job_id=asked.job_id
    )
    return ActResult(document={"job": job_document(job)}, status=HTTPStatus.ACCEPTED)


def _cancel(services: WebServices, asked: ActRequest, _fields: NoFields) -> ActResult:
    with job_of_the_path():
        job = cancel_job(services.connections, asked.request.parts["job_id"], by=asked.by)
    return ActResult(document={"job": job_document(job)})


REBUILD = WebAct(
    name="rebuild",
    summary="Puts what the inboxes hold back into Redis after an outage, as a job.",
    fields=RebuildFields,
    do=_rebuild,
)
CANCEL = WebAct(
    name="cancel",
    summary="Ends a job before its next key; what is done stays done.",
    fields=NoFields,
    do=_cancel,
)
