"""The console and the HTTP API: reconciler web."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import ConfigOption, read_settings
from reconciler.errors import MissingDependency

if TYPE_CHECKING:
    from reconciler.settings.schema import Settings

LISTEN_DEFAULT = "127.0.0.1:8378"


def web(
    listen: Annotated[
        str | None, typer.Option("--listen", help=f"HOST:PORT; default: web.listen, or {LISTEN_DEFAULT}.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve the console and the HTTP API until SIGTERM.

    Dependencies that are away are told on the pages. Exit code 2: the address cannot be had.
    """
    from reconciler.wiring.scheduler import StopSignals

    settings = read_settings(config, is_service=True)
    stop = StopSignals()
    stop.install()
    with web_serving(settings, listen or settings.web.listen or LISTEN_DEFAULT):
        stop.requested.wait()
    raise typer.Exit(stop.exit_code)


def web_serving(settings: Settings, listen: str) -> AbstractContextManager[tuple[str, int]]:
    """Console and API within the block. Raises MissingDependency, ConfigurationError."""
    try:
        from reconciler.web.server import serving_web
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"console and API need {error.name}, which is not installed: pip install 'checkback-reconciler[web]'"
        ) from error
    from reconciler.clock import SystemClock

    return serving_web(settings, listen, clock=SystemClock())


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command("web")(web)
