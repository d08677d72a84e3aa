"""The command demo."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reconciler.cli.options import OutputOption, url_of
from reconciler.cli.output import Output, print_json, print_table


class RepairChoice(StrEnum):
    """Which rung of the ladder the demo uses."""

    LADDER = "ladder"
    END = "end"
    REPUBLISH = "republish"
    HAND_OVER = "hand-over"
    OFF = "off"


def demo(
    messages: Annotated[int, typer.Option("--messages", "-m", help="Committed messages.")] = 200,
    lose: Annotated[int, typer.Option("--lose", "-l", help="How many of them get lost.")] = 12,
    seed: Annotated[int, typer.Option("--seed", help="Which ones, and in what order.")] = 1,
    repair: Annotated[
        RepairChoice, typer.Option("--repair", help="Rung to use; off leaves the losses.")
    ] = RepairChoice.LADDER,
    keep: Annotated[Path | None, typer.Option("--keep", help="Empty folder that keeps databases and logs.")] = None,
    namesrv: Annotated[str | None, typer.Option("--namesrv", help="HOST:PORT of a real RocketMQ.")] = None,
    redis_url: Annotated[
        str | None, typer.Option("--redis-url", help="A real Redis, or @FILE that holds its URL; else a private one.")
    ] = None,
    family: Annotated[str, typer.Option("--family", help="Family of the embedded broker.")] = "5.x",
    audit: Annotated[bool, typer.Option(help="Ends with the audit: on Spark, where it and Java are installed.")] = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lose messages on purpose, find them, repair them, and count: exit code 0 if every count holds."""
    from reconciler.demo.run import run_demo  # loads the plug-ins and drivers only for the demo

    outcome = run_demo(
        messages=messages,
        lose=lose,
        seed=seed,
        repair=repair.value,
        keep=keep,
        name_servers=namesrv,
        redis_url=None if redis_url is None else url_of(redis_url),
        family=family,
        is_audited=audit,
    )
    if output is Output.JSON:
        print_json(outcome.as_dict())
    else:
        print_table("What happened", ["", "count", "meaning"], outcome.rows(), first=("", "count"))
    raise typer.Exit(outcome.exit_code)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo")(demo)
