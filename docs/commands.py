"""Every command with its arguments and options, written from the command line itself: what `reconciler COMMAND --help` says.

`-h` and `--help` are options of every command. The [exit codes](exit-codes.md) are the same for all of them; where one
means something special, its command says so. What `--output json` prints: [formats](formats.md).
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import typer.main

from reconciler.audit.arguments import command_line
from reconciler.cli.app import app

#: What stands for a value of a type.
_VALUES = {str: "TEXT", int: "INTEGER", float: "NUMBER", bool: "", Path: "PATH", datetime: "TIME"}


def lines() -> Iterator[str]:
    """Below the title: a table of all commands, then a section for each."""
    root = typer.main.get_command(app)
    found = [*_of_typer(root, "reconciler"), *_of_argparse(command_line(), "reconciler")]
    yield from ("| command | what it does |", "|---|---|")
    for name, text, _ in found:
        yield f"| [`{name}`](#{_anchor(name)}) | {_marked(_paragraphs(text)[0])} |"
    for name, text, rows in found:
        yield from ("", f"## {name}", "")
        yield from "\n\n".join(_marked(one) for one in _paragraphs(text)).split("\n")
        if rows:
            yield from ("", "| argument or option | default | meaning |", "|---|---|---|", *rows)


def _of_typer(command: Any, name: str) -> Iterator[tuple[str, str, list[str]]]:
    """Commands that do something; those whose arguments the audit reads are read from its own command line."""
    inner = getattr(command, "commands", {})
    is_read_elsewhere = name in ("reconciler audit", "reconciler statement")
    if not is_read_elsewhere and (not inner or (command.invoke_without_command and command.params and " " in name)):
        yield name, command.help or "", [_row_of_typer(one) for one in command.params if not one.hidden]
    for part, one in inner.items():
        yield from _of_typer(one, f"{name} {part}")


def _row_of_typer(one: Any) -> str:
    kind = one.type_descriptor.annotation
    (kind,) = [part for part in get_args(kind) if part is not type(None)][:1] or [kind]
    is_flag = getattr(one, "is_flag", False)
    if isinstance(kind, type) and issubclass(kind, Enum):
        value = "\\|".join(str(member.value) for member in kind)
    else:
        value = one.metavar or _VALUES[kind]
    if one.opts[0].startswith("-"):
        shown = ", ".join(f"`{opt}`" for opt in (*one.opts, *one.secondary_opts)) + ("" if is_flag else f" {value}")
    else:
        shown = one.name.upper() + (" ..." if one.nargs == -1 else "")
        shown = f"{shown} ({value})" if isinstance(kind, type) and issubclass(kind, Enum) else shown
    default = one.default() if callable(one.default) else one.default
    if one.required:
        told = "required"
    elif default is True:
        told = f"`{one.opts[0]}`"
    elif default is None or default is False or default in ([], ()):
        told = ""
    else:
        told = f"`{getattr(default, 'value', default)}`"
    bounds = [f"at least {one.min}"] if one.min is not None else []
    bounds += [f"at most {one.max}"] if one.max is not None else []
    meaning = " ".join(filter(None, [one.help or "", f"({', '.join(bounds)})" if bounds else ""]))
    meaning += f" Environment variable: `{one.envvar}`." if one.envvar else ""
    return f"| {shown} | {told} | {_marked(meaning)} |"


def _of_argparse(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, str, list[str]]]:
    groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    for group in groups:
        about = {one.dest: one.help or "" for one in group._choices_actions}
        for part, inner in group.choices.items():
            if (name, part) != ("reconciler", "package"):  # of `python -m reconciler.audit` only
                inner.description = inner.description or _sentence(about.get(part, ""))
                yield from _of_argparse(inner, f"{name} {part}")
    if not groups:
        text = "\n\n".join(filter(None, [parser.description, parser.epilog]))
        rows = [_row_of_argparse(one) for one in parser._actions if not isinstance(one, argparse._HelpAction)]
        yield name, text, rows


def _row_of_argparse(one: argparse.Action) -> str:
    value = "\\|".join(one.choices) if one.choices else one.metavar or ""
    value = "" if one.nargs == 0 else f" {value}"
    shown = (", ".join(f"`{opt}`" for opt in one.option_strings) + value) if one.option_strings else f"{one.metavar}"
    told = "required" if one.required else f"`{one.default}`" if one.default else ""
    more = " May be given several times." if isinstance(one, argparse._AppendAction) else ""
    return f"| {shown} | {told} | {_marked(_sentence(one.help or ''))}{more} |"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _paragraphs(text: str) -> list[str]:
    return [" ".join(one.split("\n")) for one in inspect.cleandoc(text).split("\n\n")]


def _marked(text: str) -> str:
    """Options and settings as code."""
    text = re.sub(r"(?<![\w`-])(--[a-z-]+)(?![\w`])", r"`\1`", text)
    return text.replace("|", "\\|") if "\\|" not in text else text


def _anchor(name: str) -> str:
    return name.replace(" ", "-")
