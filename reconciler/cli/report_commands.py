"""Commands that only look: status, list, explain."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from reconciler import bootstrap
from reconciler.cli.options import ConfigOption, GroupOption, OutputOption, TopicOption, read_settings
from reconciler.cli.output import Output, print_json, print_table, time_text
from reconciler.contract.tables import CandidateState
from reconciler.contract.unique_key import require_unique_key
from reconciler.contract.verdicts import Verdict
from reconciler.ports import LedgerFilter


class Listing(StrEnum):
    """What can be listed."""

    CANDIDATES = "candidates"
    REPAIRS = "repairs"
    QUARANTINE = "quarantine"
    OUTAGES = "outages"
    FLOORS = "floors"


def status(config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Pending keys, watermarks, verdicts, repairs, holds and outages. Exit code 1 if something needs a person."""
    report = bootstrap.read_status(read_settings(config))
    if output is Output.JSON:
        print_json(report.as_dict())
    else:
        for title, columns, rows in report.tables():
            print_table(title, columns, rows)
    raise typer.Exit(1 if report.needs_a_person else 0)


def list_rows(
    what: Annotated[Listing, typer.Argument(help="Which rows.")] = Listing.CANDIDATES,
    state: Annotated[CandidateState | None, typer.Option("--state", help="Only candidates in this state.")] = None,
    verdict: Annotated[Verdict | None, typer.Option("--verdict", help="Only this verdict.")] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Most rows.")] = 100,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List candidates, repairs, refused announcements, outages or floors."""
    only = LedgerFilter(topic=topic, group=group, candidate_state=state, verdict=verdict)
    columns, rows = bootstrap.list_rows(read_settings(config), what.value, only=only, limit=limit)
    if output is Output.JSON:
        print_json({what.value: [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        shown = [[_cell(c, v) for c, v in zip(columns, row, strict=True)] for row in rows]
        print_table(what.value.capitalize(), columns, shown)


def explain(
    key: Annotated[str, typer.Argument(help="Unique key.")],
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell the life of one message in time order, with the evidence. Exit code 2 if nobody has heard of it."""
    story = bootstrap.explain(read_settings(config), require_unique_key(key.upper()))
    if output is Output.JSON:
        print_json(story.as_dict())
    else:
        rows = [
            (time_text(e.at_ms), e.witness, e.what, json.dumps(dict(e.evidence), default=str)) for e in story.events
        ]
        print_table(f"Life of {story.unique_key}", ["time", "witness", "what", "evidence"], rows)
        for line in story.outlook:
            typer.echo(line)
        for line in story.silent:
            typer.echo(f"no answer: {line}", err=True)
    raise typer.Exit(0 if story.is_known else 2)


def _cell(column: str, value: object) -> object:
    if column.endswith("_ms") and isinstance(value, int):
        return time_text(value)
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    return value


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command("status")(status)
    app.command("list")(list_rows)
    app.command("explain")(explain)
