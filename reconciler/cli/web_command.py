"""The commands of `reconciler web`, which serve the console and the HTTP API, and manage users and tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import ConfigOption, OutputOption, settings_of, start_service
from reconciler.cli.output import Output, print_json, print_table, time_text
from reconciler.contract.extras import install
from reconciler.contract.secret_sources import UnreadableSecret, read_secret_file
from reconciler.errors import ConfigurationError, InvalidValue, MissingDependency, UsageError
from reconciler.instrumentation.console import ask_secret, remark, say

if TYPE_CHECKING:
    from reconciler.commands.metrics import StatusReading
    from reconciler.policy.brakes import RateLimit
    from reconciler.settings.schema import Settings
    from reconciler.web.roles import WebRole
    from reconciler.wiring.metrics import Metering

LISTEN_DEFAULT = "127.0.0.1:8378"
DAY_MS = 86_400_000

web_app = typer.Typer(invoke_without_command=True)
user_app = typer.Typer(help="People who log in.", no_args_is_help=True)
token_app = typer.Typer(help="Bearer tokens of programs.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name that is recorded with each act.", show_default=False)]
RoleOption = Annotated[str, typer.Option("--role", help="Role: viewer, operator or admin.", show_default=False)]


@web_app.callback()
def web(
    context: typer.Context,
    listen: Annotated[
        str | None, typer.Option("--listen", help=f"HOST:PORT to listen on. Default: web.listen, or {LISTEN_DEFAULT}.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve the console and the HTTP API until SIGTERM. The commands user and token manage who may use them.

    The pages show which dependencies are away.

    Exit code 2: the address is not available, or listening there would be unsafe.
    """
    if context.invoked_subcommand is not None:
        context.obj = config
        return
    from reconciler.settings.types import require_listen

    if listen is not None:
        listen = require_listen("--listen", listen)
    settings, stop = start_service(config)
    with web_serving(settings, listen or settings.web.listen or LISTEN_DEFAULT, does_jobs=True):
        stop.requested.wait()
    raise typer.Exit(stop.exit_code)


def web_serving(
    settings: Settings,
    listen: str,
    *,
    does_jobs: bool = False,
    metering: Metering | None = None,
    repair_rate: RateLimit | None = None,
    status: StatusReading | None = None,
) -> AbstractContextManager[tuple[str, int]]:
    """Serves console and API within the block.

    `does_jobs`: True if no other part of this process works on jobs. `metering`, `repair_rate`, `status`: metrics,
    rate of repairs and reading of status that another part of this process already has. Raises MissingDependency,
    ConfigurationError.
    """
    with _extra_needed():
        from reconciler.web.server import serving_web
    from reconciler.clock import SystemClock

    return serving_web(
        settings,
        listen,
        clock=SystemClock(),
        does_jobs=does_jobs,
        metering=metering,
        repair_rate=repair_rate,
        status=status,
    )


@user_app.command("add")
def user_add(
    context: typer.Context,
    name: NameArgument,
    role: RoleOption,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="File with the password.", show_default=False)
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Add a person, or change a person's password or role.

    The command asks for the password. Without a terminal, it reads one line of standard input. Earlier sessions of the
    person end.
    """
    with _extra_needed():
        from reconciler.web.access.passwords import hashed_password
        from reconciler.web.access.users import WebUser
    from reconciler.web.access.users_file import change_users

    path = _users_path(config or context.obj)
    wanted = _role(role)
    password_hash = hashed_password(_password(name, password_file))
    user = WebUser(name=name, role=wanted, password_hash=password_hash)
    change_users(path, lambda users: users.with_entry(user))
    say(f"{name} may log in as {role}")


@user_app.command("remove")
def user_remove(context: typer.Context, name: NameArgument, config: ConfigOption = None) -> None:
    """Remove a person, whose sessions end."""
    with _extra_needed():
        from reconciler.web.access.users_file import change_users

    change_users(_users_path(config or context.obj), lambda users: users.without_user(name))
    say(f"{name} may not log in any more")


@user_app.command("list")
def user_list(context: typer.Context, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the people who may log in."""
    with _extra_needed():
        from reconciler.web.access.users_file import load_users

    found = load_users(_users_path(config or context.obj)).users.values()
    _print_entries("users", ("name", "role"), [(user.name, user.role.word) for user in found], output)


@token_app.command("add")
def token_add(
    context: typer.Context,
    name: NameArgument,
    role: RoleOption,
    days: Annotated[
        int, typer.Option("--days", min=1, max=3_660, help="Days for which the token is valid.", show_default=False)
    ],
    config: ConfigOption = None,
) -> None:
    """Make a token for a program. The token replaces an earlier one of that program, and is shown only once.

    The program sends the token as `Authorization: Bearer TOKEN`.
    """
    with _extra_needed():
        from reconciler.web.access.users import WebToken
    from reconciler.clock import SystemClock
    from reconciler.web.access.tokens import digest_of, new_token
    from reconciler.web.access.users_file import change_users

    text = new_token()
    ends_at_ms = SystemClock().now_ms() + days * DAY_MS
    token = WebToken(name=name, role=_role(role), digest=digest_of(text), expires_at_ms=ends_at_ms)
    change_users(_users_path(config or context.obj), lambda users: users.with_entry(token))
    remark(f"{name} is {role} until {time_text(ends_at_ms)} with this token, which is not kept:")
    say(text)


@token_app.command("remove")
def token_remove(context: typer.Context, name: NameArgument, config: ConfigOption = None) -> None:
    """Remove a token, which is no longer valid then."""
    with _extra_needed():
        from reconciler.web.access.users_file import change_users

    change_users(_users_path(config or context.obj), lambda users: users.without_token(name))
    say(f"the token of {name} is no longer good")


@token_app.command("list")
def token_list(context: typer.Context, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the tokens, each with the time at which it expires."""
    with _extra_needed():
        from reconciler.web.access.users_file import load_users

    found = load_users(_users_path(config or context.obj)).tokens.values()
    rows = [(token.name, token.role.word, time_text(token.expires_at_ms)) for token in found]
    _print_entries("tokens", ("name", "role", "expires"), rows, output)


def _print_entries(what: str, columns: Sequence[str], rows: Sequence[Sequence[str]], output: Output) -> None:
    if output is Output.JSON:
        print_json({what: [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        print_table(what.capitalize(), columns, rows, first=("name",))


@contextmanager
def _extra_needed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"console and API need {error.name}, which is not installed: {install('web')}"
        ) from error


def _users_path(config: Path | None) -> Path:
    found = settings_of(config).web.users_file
    if found is None:
        raise ConfigurationError("web.users_file is not set: name the file that has, or will have, the users")
    return Path(found)


def _role(name: str) -> WebRole:
    from reconciler.web.roles import ROLES_BY_NAME

    if name not in ROLES_BY_NAME:
        raise InvalidValue("--role", name, "viewer, operator or admin")
    return ROLES_BY_NAME[name]


def _password(name: str, file: Path | None) -> str:
    if file is not None:
        try:
            return read_secret_file(file)
        except UnreadableSecret as error:
            raise InvalidValue("--password-file", str(file), str(error)) from None
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = ask_secret(f"Password of {name}: ")
    if ask_secret("Again: ") != password:
        raise UsageError("the two passwords differ; nothing is changed")
    return password


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    web_app.add_typer(user_app, name="user")
    web_app.add_typer(token_app, name="token")
    app.add_typer(web_app, name="web")
