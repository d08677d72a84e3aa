"""Commands that prepare and check: config, db, topics, broker, doctor."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated

import typer

from reconciler import bootstrap
from reconciler.cli.options import ConfigOption, OutputOption, read_settings
from reconciler.cli.output import Output, print_json, print_table
from reconciler.settings import Settings

config_app = typer.Typer(help="Check and show the settings.", no_args_is_help=True)
db_app = typer.Typer(help="Tables of outbox, inbox and ledger.", no_args_is_help=True)
topics_app = typer.Typer(help="Topics that the reconciler needs.", no_args_is_help=True)


class Tree(StrEnum):
    """Tables that belong together."""

    OUTBOX = "outbox"
    INBOX = "inbox"
    LEDGER = "ledger"


class Dialect(StrEnum):
    """Databases that are supported."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"


@config_app.command("check")
def config_check(config: ConfigOption = None) -> None:
    """Validate the settings: all problems at once, exit code 2."""
    settings = read_settings(config)
    typer.echo(
        f"settings are valid: environment {settings.environment}, {len(settings.producers)} producer group(s), "
        f"{len(settings.subscriptions)} subscription(s)"
    )


@config_app.command("show")
def config_show(config: ConfigOption = None) -> None:
    """Print the settings in force, secrets and URLs masked."""
    sys.stdout.write(read_settings(config).model_dump_json(indent=2) + "\n")


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of the settings."""
    json.dump(Settings.model_json_schema(), sys.stdout, indent=2)
    sys.stdout.write("\n")


@db_app.command("upgrade")
def db_upgrade(tree: Tree, url: Annotated[str, typer.Option("--url", help="SQLAlchemy URL of the database.")]) -> None:
    """Create or upgrade the tables; running it twice is harmless."""
    revision = bootstrap.upgrade_database(url, tree.value)
    typer.echo(f"{tree.value} tables are at revision {revision}")


@db_app.command("sql")
def db_sql(
    tree: Tree,
    dialect: Annotated[Dialect, typer.Option("--dialect", help="Database to write the DDL for.")],
) -> None:
    """Print the DDL for people who run their own migrations."""
    sys.stdout.write(bootstrap.database_ddl(tree.value, dialect.value))


@topics_app.command("create")
def topics_create(config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Create the unique-key topic and the probe topic on every master, with exactly the configured queues."""
    created = bootstrap.create_topics(read_settings(config))
    rows = [(c.topic, c.broker, c.queues) for c in created]
    if output is Output.JSON:
        print_json({"topics": [{"topic": t, "broker": b, "queues": q} for t, b, q in rows]})
    else:
        print_table("Topics", ["topic", "broker", "queues"], rows)


def doctor(config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Check every dependency and say what to do about each failure; exit code 1 if a check failed."""
    findings = bootstrap.examine(read_settings(config))
    failed = [f for f in findings if f.level == "fail"]
    if output is Output.JSON:
        print_json({"healthy": not failed, "findings": [f.as_dict() for f in findings]})
    else:
        print_table("Doctor", ["check", "result", "what was found", "what to do"], [f.as_row() for f in findings])
    raise typer.Exit(1 if failed else 0)


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.add_typer(config_app, name="config")
    app.add_typer(db_app, name="db")
    app.add_typer(topics_app, name="topics")
    app.command("doctor")(doctor)
