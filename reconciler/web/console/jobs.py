"""Jobs: what was asked for, how far it is, and what came of it."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from http import HTTPStatus

from reconciler.commands.jobs import find_job, job_document, list_jobs
from reconciler.commands.repair import RepairLine
from reconciler.errors import InvalidValue
from reconciler.policy.ports import ENDED_JOBS, all_rows
from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.services import WebServices

#: The newest ones.
SHOWN_MAX = 100
_LINE = tuple(field.name for field in fields(RepairLine))


def show_all(services: WebServices, request: WebRequest) -> WebResponse:
    """The newest first."""
    found = list(all_rows(partial(list_jobs, services.connections), limit=SHOWN_MAX))
    return page(services, request, "jobs.html", jobs=found)


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """One job; `part=progress`: what changes while it is done, which the page asks for again and again."""
    try:
        job = find_job(services.connections, request.parts["job_id"])
    except InvalidValue as error:
        raise WebRefusal(HTTPStatus.NOT_FOUND, "no job has this id", kind="no-job") from error
    template = "job_progress.html" if request.asked("part") == "progress" else "job.html"
    lines = [{name: str(line.get(name, "")) for name in _LINE} for line in job.lines]
    return page(services, request, template, job=job_document(job), lines=lines, is_ended=job.state in ENDED_JOBS)
