"""Pages of jobs: request, progress and result of each job."""

from __future__ import annotations

from dataclasses import fields, replace

from reconciler.commands.acts.jobs import RebuildRequest, RepairRequest, find_job, job_document, list_jobs
from reconciler.commands.acts.repair import RepairLine
from reconciler.commands.listings import JOB_FILTERS
from reconciler.contract.tables import JobKind, JobState
from reconciler.contract.unique_key import is_unique_key
from reconciler.errors import MalformedInput
from reconciler.telling.ports.jobs import ENDED_JOBS, Job
from reconciler.web.acts.previewed import PREVIEWED_MAX
from reconciler.web.console.listings import ROWS_A_PAGE, ListingPage, filter_of
from reconciler.web.console.names import keys_to_name
from reconciler.web.console.rendering import page
from reconciler.web.cursors import cursor_of, position_of
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.problems import job_of_the_path
from reconciler.web.services import WebServices

#: Listing of jobs. Its filters are the fields with an index in the ledger, and the user.
JOB_PAGE = ListingPage(what="jobs", path="/jobs", filters=JOB_FILTERS, columns=())
_LINE = tuple(field.name for field in fields(RepairLine))


def show_all(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows jobs page by page. The first page begins with the newest job."""
    chosen, cursor = JOB_PAGE.chosen(request), request.asked("cursor")
    found = list_jobs(
        services.connections,
        only=filter_of(JOB_PAGE, chosen, now_ms=services.clock.now_ms()),
        limit=ROWS_A_PAGE,
        after=position_of(JOB_PAGE.what, cursor) if cursor else None,
    )
    return page(
        services,
        request,
        "jobs.html",
        of=JOB_PAGE,
        chosen=chosen,
        is_searched=any(chosen.values()),
        jobs=found.rows,
        next_cursor=cursor_of(JOB_PAGE.what, found.end),
        is_first=not cursor,
    )


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows one job. `part=progress`: only the part that changes during the job. The page reads this part
    repeatedly."""
    with job_of_the_path():
        job = find_job(services.connections, request.parts["job_id"])
    template = "job_progress.html" if request.asked("part") == "progress" else "job.html"
    lines = [{name: str(line.get(name, "")) for name in _LINE} | {"fact": line.get("fact")} for line in job.lines]
    is_ended = job.state in ENDED_JOBS
    named = keys_to_name(lines) if is_ended else ()
    values = {"job": job_document(job), "lines": lines, "named": named, "is_ended": is_ended, "again": again(job)}
    return page(services, request, template, **values)


def again(job: Job) -> RepairRequest | RebuildRequest | None:
    """Returns the request that repeats an ended job. The request has everything, or only what did not end well.

    None: nothing is left, or more is left than one preview takes.
    """
    is_whole = job.state is not JobState.DONE
    if job.state not in ENDED_JOBS or (job.kind is JobKind.REBUILD and not is_whole):
        return None
    try:
        if job.kind is JobKind.REBUILD:
            return RebuildRequest.of(job.request)
        asked = RepairRequest.of(job.request)
    except MalformedInput:
        return None
    told = dict.fromkeys(str(line.get("unique_key")) for line in job.lines)
    left = asked.unique_keys if is_whole else tuple(filter(is_unique_key, told))
    if len(left) > PREVIEWED_MAX or not (left or is_whole):
        return None
    return replace(asked, unique_keys=left)
