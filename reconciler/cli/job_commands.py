"""The commands of `reconciler jobs`, about long acts that people requested in the console or by the API."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import ConfigOption, OutputOption, read_settings
from reconciler.cli.output import Output, print_json, print_table, time_text, with_business_ids
from reconciler.contract.tables import JobState
from reconciler.instrumentation.console import say

if TYPE_CHECKING:
    from reconciler.telling.ports.jobs import Job

jobs_app = typer.Typer(help="List, show or cancel long acts that people requested.", no_args_is_help=True)

JobArgument = Annotated[str, typer.Argument(help="Id of the job.", show_default=False)]
_COLUMNS = ("job", "kind", "state", "done", "total", "by", "created", "ended", "error")


@jobs_app.command("list")
def jobs_list(
    state: Annotated[JobState | None, typer.Option("--state", help="Only this state.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of rows.")] = 100,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the jobs, the newest first."""
    from reconciler.commands.acts.jobs import job_document, list_jobs
    from reconciler.telling.ports.paging import LedgerFilter, all_rows
    from reconciler.wiring.connections import Connections

    with Connections.for_one_answer(read_settings(config)) as connections:
        newest_first = partial(list_jobs, connections, only=LedgerFilter(job_state=state))
        found = list(all_rows(newest_first, limit=limit))
    if output is Output.JSON:
        print_json({"jobs": [job_document(job) for job in found]})
    else:
        print_table("Jobs", _COLUMNS, [_row(job) for job in found], first=("job", "kind", "state"))


@jobs_app.command("show")
def jobs_show(job_id: JobArgument, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show one job, and the first keys that did not end well.

    Exit code 1: the job failed. Exit code 4: the job was cancelled, or some keys did not end well. Exit code 2: no job
    has this id.
    """
    from reconciler.commands.acts.jobs import find_job, job_document
    from reconciler.commands.acts.repair import RepairLine
    from reconciler.commands.asking.business_ids import business_ids_of
    from reconciler.wiring.connections import Connections

    with Connections.for_one_answer(read_settings(config)) as connections:
        job = find_job(connections, job_id)
        keys = [str(line.get("unique_key")) for line in job.lines]
        names = {} if output is Output.JSON else business_ids_of(connections, list(dict.fromkeys(keys)))
    if output is Output.JSON:
        print_json({"job": job_document(job)})
    else:
        print_table("Job", _COLUMNS, [_row(job)], first=("job", "kind", "state"))
        print_table("Outcomes", ("outcome", "keys"), sorted(job.counts.items()))
        columns = [field.name for field in fields(RepairLine)]
        lines = [tuple(line.get(name) for name in columns) for line in job.lines]
        table = with_business_ids(columns, lines, names, key="unique_key")
        print_table("Not ended well", *table, first=("unique_key", "outcome"))
        left = job.request.get("left")
        if isinstance(left, list):
            say(f"left, since no preview had counted them: {job.request['left_number']}: {', '.join(map(str, left))}")
    if job.state is JobState.FAILED:
        raise typer.Exit(1)
    raise typer.Exit(4 if job.lines or job.state is JobState.CANCELLED else 0)


@jobs_app.command("cancel")
def jobs_cancel(job_id: JobArgument, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """End a job before its next key. Finished keys are not undone.

    Exit code 4: the job had ended by itself. Exit code 2: no job has this id.
    """
    from reconciler.commands.acts.jobs import cancel_job, job_document
    from reconciler.commands.acts.operator_actions import operator
    from reconciler.telling.ports.jobs import ENDED_JOBS
    from reconciler.wiring.connections import Connections

    with Connections.for_one_answer(read_settings(config)) as connections:
        job = cancel_job(connections, job_id, by=operator())
    if output is Output.JSON:
        print_json({"job": job_document(job)})
    elif job.state is JobState.CANCELLED:
        say(f"job {job.job_id} is cancelled")
    elif job.state in ENDED_JOBS:
        say(f"job {job.job_id} had ended: {job.state}")
    else:
        say(f"job {job.job_id} ends before its next key")
    raise typer.Exit(4 if job.state in ENDED_JOBS and job.state is not JobState.CANCELLED else 0)


def _row(job: Job) -> tuple[object, ...]:
    times = (time_text(job.created_at_ms), time_text(job.ended_at_ms))
    return (job.job_id, str(job.kind), str(job.state), job.done, job.total, job.by, *times, job.error)


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.add_typer(jobs_app, name="jobs")
