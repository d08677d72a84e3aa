"""The commands of `reconciler query`, about commit queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reconciler.cli.options import ConfigOption, OutputOption, read_settings
from reconciler.cli.output import Output, print_json
from reconciler.cli.scan_command import RateOption, progress_bars
from reconciler.cli.setup_commands import print_diagnoses
from reconciler.instrumentation.console import say
from reconciler.words import said

query_app = typer.Typer(help="Commit queries: accept one, or take that back.", no_args_is_help=True)


@query_app.command("accept")
def accept(
    topic: Annotated[str, typer.Argument(help="Topic of the query.", show_default=False)],
    commit_query: Annotated[
        Path | None,
        typer.Option("--commit-query", metavar="FILE", help="TOML file of commit queries; else those of the settings."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why it is accepted although not everything is proved.")] = "",
    rate: RateOption = 20_000.0,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Accept what a commit query says of your business, on record in the ledger.

    It is tried first, as `doctor` tries it, on halves of the cluster of the settings. What is not proved needs
    --reason; what is disproved cannot be accepted. It holds for this SQL, key, states and database: after a change the
    query has to be accepted again. Exit code 1: it is not accepted.
    """
    from reconciler.commands.acts.operator_actions import operator
    from reconciler.commands.doctor.query_acceptance import accept_query
    from reconciler.wiring.commit_queries import configured_queries, read_commit_queries
    from reconciler.wiring.connections import Connections

    settings = read_settings(config)
    of_settings = configured_queries(settings).values()
    queries = [*of_settings] if commit_query is None else read_commit_queries(commit_query)
    with Connections.for_one_answer(settings) as connections, progress_bars() as progress:
        found = accept_query(
            connections,
            queries,
            topic,
            reason=reason.strip(),
            by=operator(),
            records_per_second=rate,
            progress=progress,
        )
    if output is Output.JSON:
        findings = [one.as_dict() for one in found.findings]
        print_json({"accepted": found.is_accepted, "told": said(found.told), "findings": findings})
    else:
        if found.findings:
            print_diagnoses("Commit query", found.findings)
        say(said(found.told))
    raise typer.Exit(0 if found.is_accepted else 1)


@query_app.command("withdraw")
def withdraw(
    topic: Annotated[str, typer.Argument(help="Topic of the query.", show_default=False)],
    reason: Annotated[str, typer.Option("--reason", help="Why it is no longer accepted.")] = "",
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take back that a commit query of the topic is accepted, on record in the ledger.

    It holds from now on in every process, for whichever query of the topic was accepted, until one is accepted again.
    Exit code 1: one is accepted all the same.
    """
    from reconciler.commands.acts.operator_actions import operator
    from reconciler.commands.doctor.query_acceptance import withdraw_query
    from reconciler.wiring.connections import Connections

    with Connections.for_one_answer(read_settings(config)) as connections:
        found = withdraw_query(connections, topic, reason=reason.strip(), by=operator())
    if output is Output.JSON:
        print_json({"withdrawn": found.is_withdrawn, "told": said(found.told)})
    else:
        say(said(found.told))
    raise typer.Exit(0 if found.is_withdrawn else 1)


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.add_typer(query_app, name="query")
