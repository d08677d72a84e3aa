"""The commands `audit` and `statement`. The audit's process replaces this process.

So the audit judges without the code of the service.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from typer._click.shell_completion import CompletionItem  # typer carries click, and exports no item
from typer.core import TyperCommand

from reconciler.commands.audit_program import audit_program

#: Typer's settings for passing all arguments to the audit, which reads them itself, --help included.
_ALL_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

#: Words for completion: command -> its options; below, option -> the values of a closed list. The audit has its own
#: code for arguments, which no other part imports. A test compares these words with that code.
WORDS = {
    "audit": (
        "--window", "--timezone", "--subscriptions", "--only", "--history", "--no-history", "--outbox", "--inbox",
        "--ledger", "--effects", "--from-configuration", "--evidence", "--out", "--signing-key", "--previous",
        "--public-key", "--whole-chain", "--language", "--tables", "--output", "-o", "--engine", "--master", "--spark",
        "--help", "-h",
    ),
    "statement": ("verify", "keygen", "--help", "-h"),
    "statement verify": ("--public-key", "--evidence", "--history", "--output", "-o", "--help", "-h"),
    "statement keygen": ("--output", "-o", "--help", "-h"),
}  # fmt: skip
VALUES = {
    "--engine": ("spark", "here"),
    "--language": ("en", "zh"),
    "--output": ("text", "json"),
    "-o": ("text", "json"),
}


class AuditCommand(TyperCommand):
    """A command whose options this process completes without reading them."""

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[CompletionItem]:  # type: ignore[override]  # the context is typer's
        """Returns the words that begin with `incomplete`; none for a value that only the shell can complete."""
        typed: list[str] = list(ctx.args)
        place = next((one for one in (f"{self.name} {word}" for word in typed) if one in WORDS), self.name or "")
        asked = typed[-1] if typed else ""
        words = VALUES.get(asked) or (() if takes_value(asked) else WORDS[place])
        return [
            CompletionItem(word) for word in words if word.startswith(incomplete) and (incomplete or word[0] != "-")
        ]


def takes_value(word: str) -> bool:
    """Returns True if a value follows the option."""
    return word.startswith("-") and word not in {
        "--no-history",
        "--from-configuration",
        "--whole-chain",
        "--help",
        "-h",
    }


def audit(context: typer.Context) -> None:
    """Judge whether every committed message of a window took effect once. Reads outboxes, inboxes, ledger and
    history."""
    _become("audit", context.args)


def statement(context: typer.Context) -> None:
    """Verify the signed statements of audits (verify DIR --public-key FILE), or make a key pair (keygen FILE)."""
    _become("statement", context.args)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("audit", cls=AuditCommand, context_settings=_ALL_ARGUMENTS)(audit)
    app.command("statement", cls=AuditCommand, context_settings=_ALL_ARGUMENTS)(statement)


def _become(command: str, arguments: Sequence[str]) -> None:
    """Replaces this process by the audit, so that the caller gets the audit's exit code, and signals reach the
    audit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, audit_program(command, *arguments))  # noqa: S606 - our own interpreter
