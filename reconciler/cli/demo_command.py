"""The command demo."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from reconciler.cli.options import OutputOption, url_of
from reconciler.cli.output import Output, print_json, print_table
from reconciler.errors import InvalidValue


class RepairChoice(StrEnum):
    """How the demo repairs: by the whole ladder, by one rung, or not at all."""

    LADDER = "ladder"
    END = "end"
    REPUBLISH = "republish"
    HAND_OVER = "hand-over"
    OFF = "off"


def demo(
    context: typer.Context,
    messages: Annotated[int, typer.Option("--messages", "-m", help="Number of committed messages.")] = 200,
    lose: Annotated[int, typer.Option("--lose", "-l", help="Number of these messages that get lost.")] = 12,
    seed: Annotated[int, typer.Option("--seed", help="Decides which messages get lost, and their order.")] = 1,
    repair: Annotated[
        RepairChoice, typer.Option("--repair", help="The whole ladder, one rung of it, or off: no repairs.")
    ] = RepairChoice.LADDER,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Empty or new folder for databases and logs, which stay there after the demo."),
    ] = None,
    namesrv: Annotated[str | None, typer.Option("--namesrv", help="HOST:PORT of a real RocketMQ.")] = None,
    redis_url: Annotated[
        str | None,
        typer.Option("--redis-url", help="URL of a real Redis, or @FILE with the URL. Default: a private Redis."),
    ] = None,
    family: Annotated[str, typer.Option("--family", help="Family of the embedded broker.")] = "5.x",
    audit: Annotated[
        bool,
        typer.Option(help="Whether the demo ends with the audit. It runs on Spark if Spark and Java are installed."),
    ] = True,
    classic: Annotated[
        bool, typer.Option("--classic", help="Show what the original design finds and loses, on 4.2 and on 5.x.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lose messages on purpose, find them, repair them, and count. Exit code 0: every count is as promised."""
    if classic:
        _require_script(context)
        _demo_of_the_original(keep, redis_url, output)
    from reconciler.demo.run import run_demo  # only the demo needs them

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


def _require_script(context: typer.Context) -> None:
    for name in ("messages", "lose", "seed", "repair", "namesrv", "family", "audit"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidValue(f"--{name}", "given", "leave it out: --classic plays one script, on brokers of its own")


def _demo_of_the_original(keep: Path | None, redis_url: str | None, output: Output) -> NoReturn:
    from reconciler.demo.classic.script import FAMILIES, run_classic_demo  # only the demo needs drivers

    outcome = run_classic_demo(keep=keep, redis_url=None if redis_url is None else url_of(redis_url))
    if output is Output.JSON:
        print_json(outcome.as_dict())
    else:
        print_table("The original", ["", *FAMILIES], list(outcome.rows()), first=("",))
        print_table("Audit, without a history", ["class", *FAMILIES], list(outcome.audit_rows()), first=("class",))
    raise typer.Exit(outcome.exit_code)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo")(demo)
