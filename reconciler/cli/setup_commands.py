"""Commands that prepare and check: config, db, topics, rights, uninstall, doctor, notify."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from reconciler.cli.options import ConfigOption, OutputOption, read_settings, settings_of, url_of, warn_of_password
from reconciler.cli.output import Output, print_json, print_table
from reconciler.cli.scan_command import (
    AccessKeyOption,
    CaFileOption,
    CertificateOption,
    HostNameOption,
    RateOption,
    SecretKeyOption,
    TlsOption,
    credentials,
    progress_bars,
    tls_of,
)
from reconciler.clock import SystemClock
from reconciler.commands.docs import ways_to
from reconciler.errors import MissingDependency, UsageError
from reconciler.instrumentation.console import remark, say

if TYPE_CHECKING:
    from pydantic import BaseModel

    from reconciler.commands.diagnosis import Diagnosis, Level
    from reconciler.wiring.half_scan import AclCredentials, TlsSettings

config_app = typer.Typer(help="Check and show the settings.", no_args_is_help=True)
db_app = typer.Typer(help="Tables of outbox, inbox and ledger.", no_args_is_help=True)
topics_app = typer.Typer(help="Topics that the reconciler needs.", no_args_is_help=True)
#: Levels of findings, in the order in which a person reads the findings.
_LEVELS: tuple[Level, ...] = ("fail", "note", "ok")


class Tree(StrEnum):
    """The trees: sets of tables that are upgraded together."""

    OUTBOX = "outbox"
    INBOX = "inbox"
    LEDGER = "ledger"


class Dialect(StrEnum):
    """The databases for which DDL can be printed."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"


class Server(StrEnum):
    """The kinds of servers that have logins."""

    BROKERS = "brokers"
    REDIS = "redis"
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"


#: Kind of server -> the text that begins a remark. redis-cli knows no remarks, so a remark for Redis cannot be pasted.
_REMARKS = {Server.BROKERS: "#", Server.REDIS: "#", Server.POSTGRESQL: "--", Server.MYSQL: "--"}

PlainAclOption = Annotated[
    bool, typer.Option("--plain-acl", help="The brokers have releases 4.4 to 5.2 and aclEnable=true (ACL 1.0).")
]
#: Step of `uninstall` -> the text that is printed before the lines of this step.
_STEPS = {
    "processes": "processes under systemd; else `docker compose down`, or `helm uninstall`:",
    "evidence": "where no other deployment uses them: tables of a service, at",
    "ledger": "rows of this environment in the ledger, at",
    "ledger-tables": "where no other environment uses the ledger: its tables, at",
    "brokers": "topics and groups of the reconciler (CLUSTER is yours), at",
    "redis": "keys (REDIS is its URL; of a Redis Cluster on each primary), at",
    "history": "history, unless an audit needs it:",
    "logins": "logins, if nothing else uses them, at",
    "files": "units, settings, secrets and the program:",
}


@config_app.command("check")
def config_check(config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Check the settings and show all problems at once. Opens no connection.

    Exit code 2: the settings have problems.
    """
    from reconciler.commands.db import missing_drivers
    from reconciler.settings.file import settings_path
    from reconciler.settings.open_settings import open_passwords
    from reconciler.settings.schema import MODE_NOT_NEEDED
    from reconciler.wiring.commit_queries import configured_queries
    from reconciler.wiring.subscriptions import require_past_since

    settings = settings_of(config)
    require_past_since(settings, now_ms=SystemClock().now_ms())
    configured_queries(settings)
    missing = missing_drivers(settings)
    if missing:
        raise MissingDependency("\n  ".join(["the settings need a package that is not installed", *missing]))
    if settings.rounds.mode is not None:
        remark(MODE_NOT_NEEDED)
    file = settings_path(config)
    if file is not None and (found := open_passwords(file)):
        remark(
            f"reconciler: every login of this machine may read {file}, which holds the password of {', '.join(found)}: "
            f"chmod o= {file}, or give the password by a file of its own ({found[0]}_file)"
        )
    counts = {"producers": len(settings.producers), "subscriptions": len(settings.subscriptions)}
    if output is Output.JSON:
        print_json({"valid": True, "environment": settings.environment, **counts})
    else:
        say(
            f"settings are valid: environment {settings.environment}, {counts['producers']} producer group(s), "
            f"{counts['subscriptions']} subscription(s)"
        )


@config_app.command("show")
def config_show(config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Print the settings in force. Secrets and URLs are masked."""
    document = settings_of(config).model_dump(mode="json")
    if output is Output.JSON:
        print_json({"settings": document})
    else:
        print_table("Settings", ["setting", "value"], list(_flat(document)), first=("setting", "value"))


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{name}[{number}]")
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)


@config_app.command("schema")
def config_schema(output: OutputOption = Output.JSON) -> None:
    """Print the JSON schema of the settings. With --output table, list their names, defaults and meanings."""
    from reconciler.settings.schema import Settings  # pydantic is slow to load

    if output is Output.JSON:
        print_json(Settings.model_json_schema())
    else:
        print_table(
            "Settings", ["setting", "default", "meaning"], list(_meanings(Settings)), first=("setting", "default")
        )


def _meanings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    from pydantic import BaseModel
    from pydantic_core import PydanticUndefined

    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is not None:
            yield from _meanings(inner, f"{prefix}{name}{'[]' if kinds[0] is not inner else ''}.")
            continue
        default = field.get_default(call_default_factory=True, validated_data={})
        shown = "required" if default is PydanticUndefined else "unset" if default is None else json.dumps(default)
        yield prefix + name, shown, field.description or ""


@db_app.command("upgrade")
def db_upgrade(
    tree: Annotated[Tree, typer.Argument(help="The tables to upgrade.")],
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="RECONCILER_DB_URL",
            help="SQLAlchemy URL of one database, or @FILE with the URL. Default: every database of the settings.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create or upgrade the tables. Running this twice is harmless."""
    from reconciler.commands.db import upgrade_configured, upgrade_database

    if url is None:
        upgraded = upgrade_configured(settings_of(config), tree.value)
        lines = [f"{one.name}: {tree.value} tables are at revision {one.revision}" for one in upgraded]
        document = {"revision": upgraded[0].revision, "databases": [one.name for one in upgraded]}
    else:
        warn_of_password(context, url, instead="--url @FILE or RECONCILER_DB_URL")
        revision = upgrade_database(url_of(url), tree.value)
        lines, document = [f"{tree.value} tables are at revision {revision}"], {"revision": revision}
    if output is Output.JSON:
        print_json({"tree": tree.value, **document})
    else:
        say(*lines)


@db_app.command("sql")
def db_sql(
    tree: Annotated[Tree, typer.Argument(help="The tables whose DDL is printed.")],
    dialect: Annotated[Dialect, typer.Option("--dialect", help="The kind of database.")],
    in_transaction: Annotated[
        bool,
        typer.Option(
            "--in-transaction",
            help="Without BEGIN, COMMIT and CONCURRENTLY, for a migration with its own transaction.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the DDL, for installations that run their own migrations."""
    from reconciler.commands.db import database_ddl

    ddl = database_ddl(tree.value, dialect.value, in_transaction=in_transaction)
    if output is Output.JSON:
        print_json({"tree": tree.value, "dialect": dialect.value, "sql": ddl})
    else:
        say(*ddl.removesuffix("\n").split("\n"))


@topics_app.command("create")
def topics_create(
    config: ConfigOption = None,
    business: Annotated[
        bool, typer.Option("--business", help="Also create missing business topics and groups of the settings.")
    ] = False,
    business_queues: Annotated[
        int, typer.Option(help="Queues per master of each business topic that is created.", min=1, max=1024)
    ] = 8,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create the unique-key topic and the probe topic on every master, with the configured number of queues."""
    from reconciler.commands.topics import create_topics

    created = create_topics(read_settings(config), business_queues=business_queues if business else None)
    rows = [(c.topic, c.broker, c.queues) for c in created]
    if output is Output.JSON:
        print_json({"topics": [{"topic": t, "broker": b, "queues": q} for t, b, q in rows]})
    else:
        print_table("Topics", ["topic", "broker", "queues"], rows, first=("topic", "broker", "queues"))


def doctor(
    config: ConfigOption = None,
    commit_query: Annotated[
        Path | None,
        typer.Option(
            "--commit-query", metavar="FILE", help="TOML file of commit queries. Check whether each can be trusted."
        ),
    ] = None,
    name_servers: Annotated[
        str | None,
        typer.Option(
            "--name-servers",
            "-n",
            envvar="NAMESRV_ADDR",
            help="With --commit-query: host:port of the name servers, separated by semicolons.",
        ),
    ] = None,
    rate: RateOption = 20_000.0,
    access_key: AccessKeyOption = None,
    secret_key_file: SecretKeyOption = None,
    tls: TlsOption = False,
    ca_file: CaFileOption = None,
    certificate_file: CertificateOption = None,
    verify_host_name: HostNameOption = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check every dependency, and show what to do about each failure.

    With --commit-query FILE, check whether the queries of that file can be trusted. This check needs no settings, and
    only reads. First, login, plan, types, collation and role of each query's database are examined. Then each query is
    tried on halves that were committed and on halves that were rolled back. --name-servers and the other options of a
    cluster belong to --commit-query.

    Exit code 1: a check failed, or a person has to accept a query.
    """
    from reconciler.commands.doctor.checks import examine
    from reconciler.wiring.connections import Connections

    if commit_query is None:
        if any((access_key, secret_key_file, tls, ca_file, certificate_file)):
            raise UsageError("options of a cluster belong to --commit-query; without it the settings name it")
        with Connections.for_one_answer(read_settings(config)) as connections:
            findings = examine(connections)
    else:
        if name_servers is None:
            raise UsageError("give --name-servers, or NAMESRV_ADDR: a commit query is tried on halves of a cluster")
        secured = tls_of(tls=tls, ca_file=ca_file, certificate_file=certificate_file, verify_host_name=verify_host_name)
        findings = _examined(commit_query, name_servers, credentials(access_key, secret_key_file), secured, rate)
    failed = [f for f in findings if f.level == "fail"]
    if output is Output.JSON:
        print_json({"healthy": not failed, "findings": [f.as_dict() for f in findings]})
    else:
        print_diagnoses("Doctor", findings)
    raise typer.Exit(1 if failed else 0)


def print_diagnoses(title: str, findings: Sequence[Diagnosis]) -> None:
    """Prints a table of findings, and the pages to read next. The worst findings come first."""
    worst_first = sorted(findings, key=lambda finding: _LEVELS.index(finding.level))
    columns = ("check", "result", "what was found", "what to do")
    rows = [f.as_row() for f in worst_first]
    print_table(title, columns, rows, first=("result", "check"))
    remark(*ways_to([str(cell) for row in rows for cell in row]))


def _examined(
    file: Path, name_servers: str, acl: AclCredentials | None, tls: TlsSettings | None, rate: float
) -> list[Diagnosis]:
    from reconciler.commands.doctor.commit_queries import examine_queries
    from reconciler.wiring.commit_queries import read_commit_queries
    from reconciler.wiring.half_scan import ScanRequest

    queries = read_commit_queries(file)
    request = ScanRequest(name_servers=name_servers, acl=acl, tls=tls, records_per_second=rate)
    with progress_bars() as progress:
        return examine_queries(request, queries, progress=progress)


def rights(
    server: Annotated[Server, typer.Argument(help="Kind of server that has the login.", show_default=False)],
    roles: Annotated[
        list[str],
        typer.Option(
            "--role", help="Role of the login (docs/reference/rights.md). For several roles: --role run --role sweep."
        ),
    ],
    login: Annotated[
        str | None,
        typer.Option("--login", help="Name of the login. Default: reconciler_ and the first role.", show_default=False),
    ] = None,
    plain_acl: PlainAclOption = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the statements that give a login the rights of its role on all servers of that kind in the settings.

    Opens no connection. An administrator replaces PASSWORD, and CLUSTER for brokers, and runs the statements.
    """
    from reconciler.commands.rights import role_of, statements_of

    named = [role_of(name) for name in roles]
    found = statements_of(
        settings_of(config), server.value, named, login=login or named[0].login, has_plain_acl=plain_acl
    )
    if output is Output.JSON:
        print_json({"rights": [{"place": one.place, "statements": list(one.statements)} for one in found]})
    else:
        say(*(line for one in found for line in (f"{_REMARKS[server]} {one.place}", *one.statements)))


def uninstall(
    prints: Annotated[bool, typer.Option("--print", help="Required: the lines are printed, and not run.")] = False,
    although_needed: Annotated[
        bool,
        typer.Option("--although-needed", help="Also print how to drop outboxes and inboxes that are still needed."),
    ] = False,
    plain_acl: PlainAclOption = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the lines that remove everything that the settings name, in their order. Runs none of them.

    Print the lines while `run` and `sweep` still work. An outbox is the only proof of its commits, and a group without
    its inbox applies messages a second time. So the tables of outboxes and inboxes are left out while keys are not
    settled, repairs are not over, members are connected, or a dependency is away. Then the output has the reasons.

    Exit code 4: outboxes and inboxes were left out.
    """
    from reconciler.commands.uninstall import Step, environments_beside, in_the_way, steps_of
    from reconciler.errors import DatabaseAway
    from reconciler.wiring.connections import Connections
    from reconciler.words import said

    if not prints:
        raise UsageError("give --print: the lines are printed, and none is run")
    settings, beside = read_settings(config), None
    with Connections.for_one_answer(settings) as connections:
        reasons = in_the_way(connections)
        with suppress(DatabaseAway):
            beside = environments_beside(connections)
    leaves = bool(reasons) and not although_needed
    steps = steps_of(settings, beside=beside, has_plain_acl=plain_acl)
    kept = [(step, one) for step, one in steps if not (leaves and step is Step.EVIDENCE)]
    told = [said(reason) for reason in reasons]
    if output is Output.JSON:
        lines = [{"step": step, "place": one.place, "statements": list(one.statements)} for step, one in kept]
        print_json({"uninstall": lines, "needed": [reason.as_dict() for reason in reasons]})
    else:
        for step, one in kept:
            is_sql = one.statements[0].endswith(";")
            say(f"{'--' if is_sql else '#'} {_STEPS[step]} {one.place}".rstrip(), *one.statements)
        if reasons:
            remark(f"Outboxes and inboxes are still needed{', and left out' if leaves else ''}:", *told)
    raise typer.Exit(4 if leaves else 0)


def notify(
    name: Annotated[
        str | None, typer.Argument(help="Only this notifier. A ping is sent only if it is named.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send a test message by each notifier of the settings. The message says that nothing has happened.

    Exit code 1: a receiver refused the message, and a person has to correct the settings or the receiver. Exit code 3:
    a receiver is away.
    """
    from reconciler.clock import SystemClock
    from reconciler.commands.notify import send_tests

    results = send_tests(read_settings(config), clock=SystemClock(), name=name)
    columns = ("name", "kind", "outcome", "why")
    rows = [(one.name, one.kind, one.outcome, one.why) for one in results]
    if output is Output.JSON:
        print_json({"notifiers": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        print_table("Test messages", columns, rows, first=("name", "outcome"))
    codes = {one.exit_code for one in results}
    raise typer.Exit(1 if 1 in codes else max(codes))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.add_typer(config_app, name="config")
    app.add_typer(db_app, name="db")
    app.add_typer(topics_app, name="topics")
    app.command("doctor")(doctor)
    app.command("rights")(rights)
    app.command("uninstall")(uninstall)
    app.command("notify")(notify)
