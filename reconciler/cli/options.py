"""Options that several commands share."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.output import Output
from reconciler.contract.late_names import without_collector
from reconciler.contract.named_files import require_file
from reconciler.contract.unique_key import UNIQUE_KEY_SHAPE, require_unique_key
from reconciler.contract.urls import holds_password, shown_value
from reconciler.errors import ConfigurationError, InvalidValue, MalformedInput
from reconciler.instrumentation.console import remark

if TYPE_CHECKING:
    from reconciler.settings.schema import Settings
    from reconciler.wiring.scheduler import StopSignals

logger = logging.getLogger(__name__)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="RECONCILER_CONFIG", help="Settings file (TOML).", show_default=False),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the result on standard output.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only this topic.", show_default=False)]
GroupOption = Annotated[str | None, typer.Option("--group", help="Only this consumer group.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Ask no question.")]


def read_settings(config: Path | None) -> Settings:
    """Reads the settings of --config, RECONCILER_CONFIG or the usual places, and sets up logging by these settings.

    Raises one ConfigurationError with every problem of the settings.
    """
    settings = settings_of(config)
    # A short command logs only warnings.
    _set_up_logging(settings, "warning" if settings.logging.level == "info" else settings.logging.level)
    return settings


def start_service(config: Path | None) -> tuple[Settings, StopSignals]:
    """Reads the settings of a command that runs until a stop. From now on, SIGTERM and SIGINT request the stop.

    Raises one ConfigurationError with every problem of the settings.
    """
    from reconciler.contract.release import release, revision
    from reconciler.wiring.scheduler import StopSignals  # APScheduler is slow to load

    settings = settings_of(config)
    _set_up_logging(settings, settings.logging.level)
    stop = StopSignals()
    stop.install()
    logger.info("service_started", extra={"release": release(), "revision": revision()})
    return settings, stop


def _set_up_logging(settings: Settings, level: str) -> None:
    from reconciler.instrumentation.log import configure_logging

    configure_logging(level, settings.logging.format)


def settings_of(config: Path | None) -> Settings:
    """Reads the settings without setting up logging."""
    with without_collector():
        from reconciler.settings.file import load_settings, settings_path  # pydantic is slow to load

    path = settings_path(config)
    if path is None and not any(name.startswith("RECONCILER_") for name in os.environ):
        raise ConfigurationError(
            "no settings: name a file with --config or RECONCILER_CONFIG (config/reconciler.toml shows one)"
        )
    return load_settings(path, os.environ)


def url_of(text: str) -> str:
    """Returns the URL that a person gave: the text itself, or the contents of @FILE.

    Raises ConfigurationError. The error shows no secret.
    """
    if not text.startswith("@"):
        return text
    try:
        require_file(text[1:])
        return Path(text[1:]).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text, or no file's name"
        raise ConfigurationError(f"the file {shown_value(text[1:])} that should hold the URL: {why}") from None


def warn_of_password(context: typer.Context, url: str, *, instead: str) -> None:
    """Warns the person of a password in --url, because everybody on the host can see it.

    `instead`: the options that hide a password.
    """
    source = context.get_parameter_source("url")
    if source is not None and source.name == "COMMANDLINE" and holds_password(url):
        remark(f"reconciler: the password in --url is visible in the list of processes: {instead} keeps it out")


def seconds_of(option: str, text: str) -> int:
    """Returns the seconds of a duration that a person typed."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text.strip())
    if found is None:
        raise InvalidValue(option, text, "a whole number with its unit, as 30m, 2h or 1d")
    return int(found[1]) * {"m": 60, "h": 3_600, "d": 86_400}[found[2]]


def require_key(text: str) -> str:
    """Returns the unique key that a person typed. Raises InvalidValue, because a wrong key is a usage error here."""
    try:
        return require_unique_key(text.strip())
    except MalformedInput as error:
        remedy = f"no unique key, which has {UNIQUE_KEY_SHAPE}; `reconciler explain` shows that of a business id"
        raise InvalidValue("KEY", text, remedy) from error
