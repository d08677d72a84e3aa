"""Commands that run until a stop: run, sweep, announcements, replay and broker; also `once`, which ends by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reconciler.cli.options import ConfigOption, OutputOption, start_service
from reconciler.cli.output import Output, print_json, print_table
from reconciler.cli.web_command import web_serving


def run(config: ConfigOption = None) -> None:
    """Run the reconciler: announcement consumers, rounds, verdicts and repairs.

    Waits for dependencies that are away. After SIGTERM, the process finishes its present step and ends with exit code
    0. After a second SIGTERM, it ends at once with exit code 130.
    """
    from reconciler.commands.run import run_service

    settings, stop = start_service(config)
    listen = settings.web.listen
    if listen is None:
        run_service(settings, stop.requested)
    else:
        run_service(
            settings,
            stop.requested,
            beside=lambda metering, repair_rate, status: web_serving(
                settings, listen, metering=metering, repair_rate=repair_rate, status=status
            ),
        )
    raise typer.Exit(stop.exit_code)


def sweep(config: ConfigOption = None) -> None:
    """Run the sweeper, which announces commits of dead producers, settles outbox rows, and answers check-backs.

    A row is settled when every inbox has its message. The sweeper answers check-backs from the outbox, for producer
    groups with answer_checks = true.
    """
    from reconciler.commands.sweep import run_sweeper

    settings, stop = start_service(config)
    run_sweeper(settings, stop.requested)
    raise typer.Exit(stop.exit_code)


def announcements(config: ConfigOption = None) -> None:
    """Run announcement consumers, and nothing else.

    `reconciler run` has announcement consumers, too. Several processes are harmless, because leases give each queue to
    one of them.
    """
    from reconciler.commands.announcements import run_announcements

    settings, stop = start_service(config)
    run_announcements(settings, stop.requested)
    raise typer.Exit(stop.exit_code)


def replay(
    handler: Annotated[
        str,
        typer.Option(
            "--handler", help="package.module:function of the business handler, called with (message, connection)."
        ),
    ],
    topic: Annotated[str, typer.Option("--topic", help="Business topic.")],
    group: Annotated[str, typer.Option("--group", help="Consumer group.")],
    config: ConfigOption = None,
) -> None:
    """Run a replay worker, which gives handed-over messages to a group's handler, through the group's inbox."""
    from reconciler.commands.replay import run_replay

    settings, stop = start_service(config)
    run_replay(settings, stop.requested, handler=handler, topic=topic, group=group)
    raise typer.Exit(stop.exit_code)


def once(
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds after which the command ends even if repairs are open.")
    ] = 60.0,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read the announcements, run rounds until every repair is verified, and show the result.

    Exit code 0: every repair is verified, and nothing is pending. Exit code 4: some repairs failed, are held or are not
    due yet, or some keys are still pending.
    """
    from reconciler.commands.once import run_once

    settings, stop = start_service(config)
    report = run_once(settings, stop.requested, wait_seconds=wait)
    if output is Output.JSON:
        print_json(report.as_dict())
    else:
        print_table("Once", ["topic", "group", *report.columns], report.rows(), first=("topic", "group"))
    raise typer.Exit(report.exit_code if not stop.requested.is_set() else stop.exit_code)


def broker(
    listen: Annotated[
        str, typer.Option("--listen", help="HOST:PORT to listen on. Port 0 picks a free port.")
    ] = "127.0.0.1:0",
    family: Annotated[str, typer.Option("--family", help="Family: 3.2.6, 4.2, 4.4, 4.9 or 5.x.")] = "5.x",
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder for an append-only log. Default: messages are kept in memory.")
    ] = None,
    knob: Annotated[
        list[str] | None, typer.Option("--knob", help="NAME=VALUE of a fault or setting of the broker. Repeatable.")
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", help="PEM file with the broker's certificate, for TLS on the same port."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="PEM file with the key. Default: the file of the certificate.")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-client-ca", help="PEM file of authorities. Clients must show a certificate of one of them."
        ),
    ] = None,
    tls_mode: Annotated[
        str | None, typer.Option("--tls-mode", help="permissive (the default of brokers), enforcing or disabled.")
    ] = None,
    users: Annotated[
        Path | None, typer.Option("--users", help="TOML file of users. One of them must sign each request.")
    ] = None,
) -> None:
    """Serve an embedded name server and broker on one port until SIGTERM, for demos and tests.

    Once it listens, the command prints one JSON line with its address.
    """
    from reconciler.embedded.serving import serve, server_tls

    tls = server_tls(certificate=tls_certificate, key=tls_key, client_ca=tls_client_ca, mode=tls_mode)
    raise typer.Exit(serve(listen, family=family, data=data, knobs=knob or [], tls=tls, users=users))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    for command in (run, once, sweep, announcements, replay, broker):
        app.command(command.__name__)(command)
