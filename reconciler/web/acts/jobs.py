"""The acts that are jobs, and the act that ends a job."""

from __future__ import annotations

from http import HTTPStatus

from pydantic import Field

from reconciler.commands.acts.jobs import cancel_job, job_document, place_rebuild
from reconciler.contract.tables import JobKind, JobState
from reconciler.web.acts.act import DONE, PLACED, ActRequest, ActResult, NoFields, Reasoned, WebAct
from reconciler.web.description import (
    ANYTHING,
    NUMBER,
    TEXT,
    TIME_MS,
    Schema,
    listed,
    nullable,
    one_of,
    record,
)
from reconciler.web.problems import job_of_the_path
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices


class RebuildFields(Reasoned):
    """Fields that name the inbox rows to scan."""

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


JOB: Schema = record(
    {
        "job_id": TEXT,
        "kind": one_of(JobKind),
        "request": {"type": "object", "description": "What was asked for; if keys were named, their number."},
        "by": TEXT,
        "state": one_of(JobState),
        "done": {**NUMBER, "description": "Repair: keys that are finished. Rebuild: inbox rows."},
        "total": {**nullable(NUMBER), "description": "Repair: keys. null: not known."},
        "counts": {"type": "object", "additionalProperties": NUMBER, "description": "Finished keys by outcome."},
        "lines": {**listed(ANYTHING), "description": "The first keys that did not end well, and why."},
        "error": {**nullable(TEXT), "description": "Why it failed, or what it waits for."},
        "cancelled_by": nullable(TEXT),
        "created_at_ms": TIME_MS,
        "started_at_ms": nullable(TIME_MS),
        "ended_at_ms": nullable(TIME_MS),
    }
)
OF_JOB = record({"job": JOB})
REBUILD = WebAct(
    name="rebuild",
    path="/rebuilds",
    role=WebRole.ADMIN,
    summary="Puts what the inboxes hold back into Redis after an outage, as a job.",
    fields=RebuildFields,
    do=_rebuild,
    answer=OF_JOB,
    statuses=PLACED,
)
CANCEL = WebAct(
    name="cancel",
    path="/jobs/{job_id}/cancel",
    role=WebRole.OPERATOR,
    summary="Ends a job before its next key; what is done stays done.",
    fields=NoFields,
    do=_cancel,
    answer=OF_JOB,
    statuses=DONE | {404: "no job has this id"},
)
