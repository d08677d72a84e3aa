"""The command `reconciler`, with all of its commands. Only this module turns errors into exit codes:

- 0: done and clean
- 1: differences, violations or failed checks
- 2: a mistake in usage or configuration, or missing evidence
- 3: a dependency is unreachable
- 4: partly done
- 5: changed meanwhile
- 70: a bug, with its traceback
- 130: SIGINT, or a second SIGTERM
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Sequence
from copy import copy
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException
from typer.main import get_command, get_command_name
from typer.models import CommandInfo

from reconciler.cli import (
    act_commands,
    audit_command,
    daemon_commands,
    demo_command,
    group_commands,
    incomplete_commands,
    job_commands,
    query_commands,
    report_commands,
    scan_command,
    setup_commands,
    web_command,
)
from reconciler.commands.docs import ways_to
from reconciler.contract.release import version_line
from reconciler.errors import ReconcilerError
from reconciler.instrumentation.console import remark, say

app = typer.Typer(
    name="reconciler",
    help="Finds RocketMQ messages that were committed locally but never delivered, proves it, repairs them once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        say(version_line())
        raise typer.Exit


@app.callback()
def _root(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print release and revision.", is_eager=True, callback=lambda v: _print_version(wanted=v)
        ),
    ] = False,
) -> None:
    """Finds RocketMQ messages that were committed locally but never delivered, proves it, repairs them once."""


daemon_commands.register(app)
report_commands.register(app)
scan_command.register(app)
act_commands.register(app)
incomplete_commands.register(app)
group_commands.register(app)
query_commands.register(app)
setup_commands.register(app)
demo_command.register(app)
audit_command.register(app)
job_commands.register(app)
web_command.register(app)


def run(arguments: Sequence[str]) -> int:
    """Runs one command, and returns its exit code. Raises nothing except SystemExit."""
    try:
        code = get_command(_only(arguments)).main(args=list(arguments), prog_name="reconciler", standalone_mode=False)
    except TyperException as error:
        remark(*_lines_of(error))
        return 2
    except (Abort, KeyboardInterrupt):
        remark("reconciler: interrupted")
        return 130
    except ReconcilerError as error:
        if error.exit_code == 70:
            remark(traceback.format_exc())
        remark(f"reconciler: {error}", *ways_to([str(error)]))
        return error.exit_code
    except Exception:  # noqa: BLE001 - a bug keeps its traceback and gets its own code
        remark(traceback.format_exc(), "reconciler: this is a bug; please report it with the lines above")
        return 70
    return code if isinstance(code, int) else 0


def _only(arguments: Sequence[str]) -> typer.Typer:
    """Returns an app that has only the first command in `arguments`.

    Typer reads the options of every command of an app, so an app with all commands starts slowly.
    """
    name = arguments[0] if arguments else ""
    only = copy(app)
    only.registered_commands = [one for one in app.registered_commands if _name_of(one) == name]
    only.registered_groups = [one for one in app.registered_groups if one.name == name]
    return only if only.registered_commands or only.registered_groups else app


def _name_of(command: CommandInfo) -> str:
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))


def _lines_of(error: TyperException) -> list[str]:
    """Returns the lines that typer would print for an error. For a usage error, the lines include the command's
    usage."""
    show = getattr(error, "show", None)
    if show is None:
        return [f"reconciler: {error}"]
    shown = io.StringIO()
    show(file=shown)
    return shown.getvalue().rstrip("\n").split("\n")
