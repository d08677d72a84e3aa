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

query_app = typer.Typer(help="Accept a commit query, or withdraw the acceptance.", no_args_is_help=True)


@query_app.command("accept")
def accept(
    topic: Annotated[str, typer.Argument(help="Topic of the query.", show_default=False)],
    commit_query: Annotated[
        Path | None,
        typer.Option(
            "--commit-query", metavar="FILE", help="TOML file of commit queries. Default: the queries of the settings."
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", help="Why the query is accepted although a check could not prove it.")
    ] = "",
    rate: RateOption = 20_000.0,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Accept a commit query as a proof of commits. The ledger records the act.

    The query is checked first, as `doctor` does, on halves of the settings' cluster. If a check proves nothing,
    --reason is needed. If a check disproves the query, it cannot be accepted. Effect queries of the topic are checked,
    too, on messages that their groups have passed. The acceptance counts for this SQL, key, states and database, and
    for these effect queries. After a change of one of them, accept the query again.

    Exit code 1: the query was not accepted.
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
    reason: Annotated[str, typer.Option("--reason", help="Why the query is no longer accepted.")] = "",
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Withdraw the acceptance of a topic's commit query. The ledger records the act.

    From now on, no process counts any query of the topic as accepted, until a person accepts one again.

    Exit code 1: a query of the topic is accepted nevertheless.
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
