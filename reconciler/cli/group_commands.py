"""The commands of `reconciler group`, about consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import (
    ConfigOption,
    OutputOption,
    YesOption,
    read_settings,
    url_of,
    warn_of_password,
)
from reconciler.cli.output import Output, print_json, print_table
from reconciler.errors import InvalidValue
from reconciler.instrumentation.console import ask, people, remark, say

if TYPE_CHECKING:
    from reconciler.commands.renaming.group_rename import RenameReport

group_app = typer.Typer(help="Give a consumer group another name.", no_args_is_help=True)

#: Exit code if the person declined and nothing was changed.
DECLINED = 4
_FIRST = ("what", "where")


@group_app.command("rename")
def rename(
    context: typer.Context,
    old: Annotated[str, typer.Argument(help="Name of the group in the settings.", show_default=False)],
    new: Annotated[str, typer.Argument(help="New name of the group.", show_default=False)],
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            help="SQLAlchemy URL of an inbox of the group with a login that may write, or @FILE with the URL. Give one "
            "for each inbox. Default: inbox_url.",
            show_default=False,
        ),
    ] = None,
    leave_waiting: Annotated[
        bool, typer.Option("--leave-waiting", help="Leave messages that wait in the topics' queues to the new name.")
    ] = False,
    pulls: Annotated[
        bool,
        typer.Option("--pulls", help="Confirm that no member of OLD popped in the last 12 hours. 5.x cannot show it."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes. Change nothing.")] = False,
    yes: YesOption = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a consumer group another name. No effect happens again, because inbox rows, offsets and verdicts are copied.

    Stop every member, `run` and `sweep` before. The command shows the changes first and asks, unless --yes is given.

    Exit code 1: the output says why nothing was changed. 5: a member came, or an offset moved; try again. 4: declined.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # slow to load

    from reconciler.commands.acts.operator_actions import operator
    from reconciler.commands.renaming.group_rename import WantedRename, rename_group
    from reconciler.settings.types import require_group
    from reconciler.wiring.connections import Connections

    for one in url or []:
        warn_of_password(context, one, instead="--url @FILE")
    console = people()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Connections.for_people(read_settings(config)) as connections,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("inbox rows", total=None, visible=False)

        def confirm(preview: RenameReport) -> bool:
            return yes or _ask_first(preview)

        def show(seen: int, of: int) -> None:
            progress.update(task, completed=seen, total=of, visible=True)

        wanted = WantedRename(
            old=old,
            new=require_group("NEW", new),
            by=operator(),
            urls=[url_of(one) for one in url or []],
            leaves_waiting=leave_waiting,
            pulls=pulls,
            confirm=confirm,
            progress=show,
        )
        report = rename_group(connections, wanted, dry_run=dry_run)
    if report is None:
        remark("nothing was changed")
        raise typer.Exit(DECLINED)
    _show(report, output)
    raise typer.Exit(report.exit_code)


def _show(report: RenameReport, output: Output) -> None:
    if output is Output.JSON:
        print_json(report.as_dict())
    else:
        print_table(_title(report), report.columns, report.rows(), first=_FIRST)
        say(*(f"refused: {why}" for why in report.refused), *(f"note: {note}" for note in report.notes))
        say(*report.next_steps)


def _title(report: RenameReport) -> str:
    return f"{report.old} is {report.new}" if report.is_done else f"{report.old} would be {report.new}"


def _ask_first(preview: RenameReport) -> bool:
    print_table(_title(preview), preview.columns, preview.rows(), first=_FIRST, to_people=True)
    remark(*(f"note: {note}" for note in preview.notes))
    answer = ask(f"Rename {preview.old} to {preview.new}? [y/N]: ")
    if answer is None:
        raise InvalidValue("--yes", False, "the question got no answer: give --yes")
    return answer


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.add_typer(group_app, name="group")
