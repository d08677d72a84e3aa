"""The command `incomplete`, for inbox rows whose handler committed before it returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import (
    ConfigOption,
    OutputOption,
    YesOption,
    read_settings,
    require_key,
    url_of,
    warn_of_password,
)
from reconciler.cli.output import Output, print_json, print_table
from reconciler.contract.tables import Ending
from reconciler.errors import InvalidValue
from reconciler.instrumentation.console import ask, remark

if TYPE_CHECKING:
    from reconciler.commands.acts.incomplete import IncompleteReport

#: Exit code if the person declined and nothing was changed.
DECLINED = 4
_FIRST = ("unique key", "outcome")


def incomplete(
    ending: Annotated[Ending, typer.Argument(help="What is done with the rows.")],
    context: typer.Context,
    topic: Annotated[str, typer.Option("--topic", help="Business topic.")],
    group: Annotated[str, typer.Option("--group", help="Consumer group.")],
    reason: Annotated[str, typer.Option("--reason", help="What a person found or did. Kept with the act.")],
    keys: Annotated[list[str] | None, typer.Argument(help="Unique keys.", show_default=False)] = None,
    every_row: Annotated[bool, typer.Option("--all", help="Every incomplete row of the group in the topic.")] = False,
    also_young: Annotated[
        bool,
        typer.Option("--also-young", help="Also end rows younger than 15 minutes. Confirms that their handlers ended."),
    ] = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            help="SQLAlchemy URL of the inbox with a login that may write, or @FILE with the URL. Default: inbox_url.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rows. Change nothing.")] = False,
    yes: YesOption = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """End incomplete inbox rows: their handler ended the transaction before it returned.

    accept: the effect is whole, so each further delivery of the key is a duplicate. delete: a person has undone the
    half effect, and the next delivery runs the handler. --all first shows the rows and asks, unless --yes is given. A
    row younger than 15 minutes stays as it is, because its handler may still run.

    Exit code 4: a requested row stayed as it was, or with --dry-run would stay.
    """
    from reconciler.commands.acts.incomplete import WantedEnding, end_incomplete
    from reconciler.commands.acts.operator_actions import operator
    from reconciler.wiring.connections import Connections

    if bool(keys) == every_row:
        raise InvalidValue("KEYS", keys or [], "name keys, or give --all, not both")
    if not reason.strip():
        raise InvalidValue("--reason", reason, "say what was found or done")
    if url is not None:
        warn_of_password(context, url, instead="--url @FILE")
    wanted = WantedEnding(
        topic=topic,
        group=group,
        ending=ending,
        reason=reason,
        by=operator(),
        unique_keys=[require_key(key) for key in keys or []],
        also_young=also_young,
        url=None if url is None else url_of(url),
        confirm=lambda preview: yes or _ask_first(ending, preview),
    )
    with Connections.for_one_answer(read_settings(config)) as connections:
        report = end_incomplete(connections, wanted, dry_run=dry_run)
    if report is None:
        remark("nothing was changed")
        raise typer.Exit(DECLINED)
    if output is Output.JSON:
        print_json(report.as_dict())
    else:
        print_table("Incomplete", report.columns, report.keys, first=_FIRST)
    raise typer.Exit(report.exit_code)


def _ask_first(ending: Ending, preview: IncompleteReport) -> bool:
    print_table(f"To {ending}", preview.columns, preview.keys, first=_FIRST, to_people=True)
    answer = ask(f"{ending.capitalize()} these rows? [y/N]: ")
    if answer is None:
        raise InvalidValue("--all", True, "the question got no answer: give --yes, or name keys")
    return answer


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command("incomplete")(incomplete)
