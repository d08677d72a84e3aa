"""Commands that run until a stop: run, sweep, announcements, replay and broker. The single pass `once` is here, too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reconciler.cli.options import ConfigOption, OutputOption, start_service
from reconciler.cli.output import Output, print_json, print_table
from reconciler.cli.web_command import web_serving


def run(config: ConfigOption = None) -> None:
    """Run the reconciler: announcement consumers, rounds, verification, repair.

    Waits for dependencies that are away. SIGTERM finishes the step in hand and ends with 0, a second one ends at once
    with 130.
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
            beside=lambda metering, repair_rate: web_serving(
                settings, listen, metering=metering, repair_rate=repair_rate
            ),
        )
    raise typer.Exit(stop.exit_code)


def sweep(config: ConfigOption = None) -> None:
    """Run the sweeper: announce what producers could not, settle outbox rows, answer checks.

    Rows are settled when every inbox has their message. Check-backs of the broker are answered from the outbox for
    producer groups with answer_checks = true.
    """
    from reconciler.commands.sweep import run_sweeper

    settings, stop = start_service(config)
    run_sweeper(settings, stop.requested)
    raise typer.Exit(stop.exit_code)


def announcements(config: ConfigOption = None) -> None:
    """Run announcement consumers only.

    reconciler run has its own; several are harmless, leases share the queues out.
    """
    from reconciler.commands.announcements import run_announcements

    settings, stop = start_service(config)
    run_announcements(settings, stop.requested)
    raise typer.Exit(stop.exit_code)


def replay(
    handler: Annotated[
        str,
        typer.Option(
            "--handler", help="package.module:function of the business handler; called with (message, connection)."
        ),
    ],
    topic: Annotated[str, typer.Option("--topic", help="Business topic.")],
    group: Annotated[str, typer.Option("--group", help="Consumer group.")],
    config: ConfigOption = None,
) -> None:
    """Run a replay worker: give handed-over messages to a group's handler, through its inbox."""
    from reconciler.commands.replay import run_replay

    settings, stop = start_service(config)
    run_replay(settings, stop.requested, handler=handler, topic=topic, group=group)
    raise typer.Exit(stop.exit_code)


def once(
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to go on until all is repaired.")] = 60.0,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read the announcements, run rounds until all is repaired and verified, and show the result.

    Exit code 0: all that was found is repaired and verified; 4: some repairs
    failed, are held or not yet due.
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
    listen: Annotated[str, typer.Option("--listen", help="HOST:PORT; port 0 picks a free one.")] = "127.0.0.1:0",
    family: Annotated[str, typer.Option("--family", help="3.2.6, 4.2, 4.4, 4.9 or 5.x.")] = "5.x",
    data: Annotated[Path | None, typer.Option("--data", help="Folder of an append-only log; else memory.")] = None,
    knob: Annotated[
        list[str] | None, typer.Option("--knob", help="NAME=VALUE, a fault or a setting of the broker; repeatable.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="PEM file of its certificate: speak TLS on the same port.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="PEM file of the key, if it is not with the certificate.")
    ] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option("--tls-client-ca", help="Clients must show a certificate of these authorities.")
    ] = None,
    tls_mode: Annotated[
        str | None, typer.Option("--tls-mode", help="permissive (as brokers by default), enforcing or disabled.")
    ] = None,
    users: Annotated[
        Path | None, typer.Option("--users", help="TOML file of users: requests must be signed by one of them.")
    ] = None,
) -> None:
    """Serve an embedded name server and broker on one port, for demos and tests, until SIGTERM.

    When ready it prints one JSON line that says where it listens.
    """
    from reconciler.embedded.serving import serve, server_tls

    tls = server_tls(certificate=tls_certificate, key=tls_key, client_ca=tls_client_ca, mode=tls_mode)
    raise typer.Exit(serve(listen, family=family, data=data, knobs=knob or [], tls=tls, users=users))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    for command in (run, once, sweep, announcements, replay, broker):
        app.command(command.__name__)(command)
