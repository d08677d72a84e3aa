"""The commands audit and statement: this process becomes the audit's, which judges without the service's code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from reconciler.commands.audit_program import audit_program

#: The audit reads its own arguments, --help too.
_ALL_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def audit(context: typer.Context) -> None:
    """Judge a window from outboxes, inboxes, ledger and history: did every committed message take effect once?"""
    _become("audit", context.args)


def statement(context: typer.Context) -> None:
    """Verify signed statements of audits (verify DIR --public-key FILE), or make a key pair (keygen FILE)."""
    _become("statement", context.args)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("audit", context_settings=_ALL_ARGUMENTS)(audit)
    app.command("statement", context_settings=_ALL_ARGUMENTS)(statement)


def _become(command: str, arguments: Sequence[str]) -> None:
    """Replaces this process: exit codes and signals are the audit's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, audit_program(command, *arguments))  # noqa: S606 - our own interpreter
