"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from reconciler.cli.output import Output
from reconciler.errors import ConfigurationError
from reconciler.settings import Settings, load_settings, settings_path

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="RECONCILER_CONFIG", help="Settings file (TOML).", show_default=False),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the result on standard output.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only this topic.", show_default=False)]
GroupOption = Annotated[str | None, typer.Option("--group", help="Only this consumer group.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def read_settings(config: Path | None) -> Settings:
    """The settings of --config, RECONCILER_CONFIG or the usual places; ConfigurationError with every problem."""
    path = settings_path(config)
    if path is None and not any(name.startswith("RECONCILER_") for name in os.environ):
        raise ConfigurationError(
            "no settings: name a file with --config or RECONCILER_CONFIG (config/reconciler.toml shows one)"
        )
    return load_settings(path, os.environ)
