"""What `--output json` prints, and where each other form that leaves the product is described.

A command prints one object on standard output; remarks go to standard error. The first member is `schema_version`, 1. Times
are milliseconds UTC since 1970, names end in `_ms`. A later release may add members, and takes none away without the mark
BREAKING in the [changelog](../../CHANGELOG.md).
"""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer.main

from reconciler.cli.app import app
from reconciler.cli.report_commands import ListingName
from reconciler.commands import scan
from reconciler.commands.acts.dismiss import DismissalLine, DismissalReport
from reconciler.commands.acts.dismissed_halves import HalfLine
from reconciler.commands.acts.incomplete import IncompleteReport
from reconciler.commands.acts.repair import ManualRepairReport, RepairLine
from reconciler.commands.listings import LISTINGS
from reconciler.commands.once import OnceReport
from reconciler.commands.renaming.group_on_brokers import GroupQueue
from reconciler.commands.renaming.group_rename import RenamedInbox, RenameReport
from reconciler.demo.run import MEANINGS
from reconciler.web.routes import ROUTES

API = runpy.run_path(str(Path(__file__).parent / "http_api.py"))
#: Commands that print what the API answers, with the member that only the API has.
SAME_AS_API = {
    "reconciler status": ("/api/v1/status", "exit_code"),
    "reconciler explain": ("/api/v1/messages/{name:path}", ""),
    "reconciler doctor": ("/api/v1/doctor", ""),
    "reconciler jobs show": ("/api/v1/jobs/{job_id}", ""),
    "reconciler jobs cancel": ("/api/v1/jobs/{job_id}", ""),
}
#: Other forms, and the page of each.
OTHERS = {
    "rows of outbox, inbox and ledger": "[tables](tables.md)",
    "keys and members in Redis": "[Redis keys](redis-keys.md)",
    "announcements, and their signature": "[announcement format](announcement.md), with [test vectors](test-vectors.md)",
    "the HTTP API and its problem documents": "[HTTP API](http-api.md)",
    "settings (TOML)": "[settings](settings.md); `reconciler config schema` prints their JSON schema",
    "metrics": "[metrics](metrics.md)",
    "files of the history (Parquet), and its manifest": "[how the history is written](../explanation/history.md)",
    "evidence and results of an audit": "[audit](audit.md#the-evidence-folder)",
    "signed statements": "[statements](statement.md#the-files)",
}


def lines() -> Iterator[str]:
    """Below the title: the commands in the order of the command line, then other forms."""
    yield from ("## Commands", "")
    for name, callback in _commands(typer.main.get_command(app), "reconciler"):
        yield from (f"### {name}", "", *_of(name, callback), "")
    yield from (
        "### reconciler audit",
        "",
        "The object stands in [audit](audit.md#json).",
        "",
    )
    yield from (
        "### reconciler statement",
        "",
        "The object stands beside [what verify says](statement.md#what-verify-says).",
        "",
    )
    yield from ("## Other forms", "", "| what | described in |", "|---|---|")
    yield from (f"| {what} | {where} |" for what, where in OTHERS.items())


def _commands(command: Any, name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    if "output" in {one.name for one in command.params}:
        yield name, inspect.unwrap(command.callback)
    for part, one in getattr(command, "commands", {}).items():
        yield from _commands(one, f"{name} {part}")


def _of(name: str, callback: Callable[..., Any]) -> Iterator[str]:
    if name in SAME_AS_API:
        path, extra = SAME_AS_API[name]
        (route,) = [route for route in ROUTES if (route.path, route.method) == (path, "GET")]
        shown = API["_shown"](route)
        more = f" without `{extra}`" if extra else ""
        yield f"The answer of [`GET {shown.path}`](http-api.md#{API['_anchor'](shown)}){more}."
        return
    match name:
        case "reconciler list":
            yield from ("`has_more`, `notes`, and the rows under the name of the listing:", "")
            yield from ("| listing | members of a row |", "|---|---|")
            yield from (f"| `{what}` | {_names(LISTINGS[what].names)} |" for what in ListingName)
        case "reconciler once":
            outer = _keys(OnceReport.as_dict)
            yield f"{_names(outer)}; of each subscription {_names(_keys(OnceReport._lines))}."
        case "reconciler repair":
            found = re.findall(r"#: (.+)\n +(\w+):", inspect.getsource(RepairLine))
            told = {field: text for text, field in found}
            yield f"{_names(_keys(ManualRepairReport.as_dict))}; of each key:"
            yield from ("", "| member | values |", "|---|---|")
            yield from (f"| `{one.name}` | {told.get(one.name, 'text')} |" for one in fields(RepairLine))
            yield "| `fact` | code and fields of the reason, or null |"
        case "reconciler dismiss":
            named = _names([one.name for one in fields(DismissalLine)])
            yield f"{_names(_keys(DismissalReport.as_dict))}; of each key {named}."
            halves = _names([one.name for one in fields(HalfLine)])
            yield "`outcome` is `dismissed`, `SETTLED`, `changed`, `has its effect`, or what the reconciler works on; "
            yield "with `--take-back` `taken back`, `not dismissed`, `changed`, or that. "
            yield f"`now` is null unless it is `changed` or `has its effect`. For each half that was looked at: {halves}."
        case "reconciler incomplete":
            ended = IncompleteReport(keys=(("", "", "", ""),)).as_dict()
            (row,) = ended["keys"]  # type: ignore[misc]
            yield f"{_names(ended)}; of each key {_names(row)}."
        case "reconciler group rename":
            inbox = RenamedInbox(database="", rows=0, missing=0)
            queue = GroupQueue(topic="", broker="", queue_id=0, offset=0, offset_before=None, waiting=0)
            renamed = RenameReport(old="", new="", topics=(), inboxes=(inbox,), queues=(queue,)).as_dict()
            (row,), (offset,) = renamed["inboxes"], renamed["offsets"]  # type: ignore[misc]
            yield f"{_names(renamed)}; of each inbox {_names(row)}; of each offset {_names(offset)}."
        case "reconciler scan":
            yield f"{_names(_told(scan.ScanReport.as_dict))}; of each broker {_names(_told(scan._broker))};"
            yield f"of each group {_names(_told(scan._group))}; of each half {_names(_keys(scan.half_row))}; "
            yield f"of `outcomes` {_names(_keys(scan.outcome_row))}. "
            yield "`unread`, `next` and each of `notes` have `text`, `code` and `fields`."
        case "reconciler demo":
            yield from (
                "`seconds`, `audit` (`verdict`, `classes`), and the counts:",
                "",
                "| member | meaning |",
                "|---|---|",
            )
            yield from (f"| `{count}` | {meaning} |" for count, meaning in MEANINGS.items() if count != "audit")
        case "reconciler jobs list":
            yield "`jobs`: each as [`reconciler jobs show`](#reconciler-jobs-show) prints it under `job`."
        case "reconciler config schema":
            yield "The JSON schema of the settings."
        case _:
            yield f"{_names(_printed(callback))}."


def _keys(function: Callable[..., Any]) -> list[str]:
    """The names in the dictionaries of a function, each once, at its last place."""
    found = [one for one in ast.walk(_tree(function)) if isinstance(one, ast.Dict)]
    names = [str(key.value) for one in found for key in one.keys if isinstance(key, ast.Constant)]
    return list(dict.fromkeys(reversed(names)))[::-1]


def _told(function: Callable[..., Any]) -> list[str]:
    return [name for name in _keys(function) if name != "text"]


def _printed(function: Callable[..., Any]) -> list[str]:
    """The members of the object that a command prints, read in its source."""
    tree = _tree(function)
    calls = {ast.unparse(one.func): one.args for one in ast.walk(tree) if isinstance(one, ast.Call)}
    if "_print_entries" in calls:
        what, columns, *_ = calls["_print_entries"]
        return [f"{ast.literal_eval(what)}[].{column}" for column in ast.literal_eval(columns)]
    (printed,) = calls["print_json"]
    assert isinstance(printed, ast.Dict)
    found: list[str] = []
    for key, value in zip(printed.keys, printed.values, strict=True):
        if isinstance(value, ast.ListComp) and isinstance(value.elt, ast.Dict) and key is not None:
            found += [f"{ast.literal_eval(key)}[].{ast.literal_eval(one)}" for one in value.elt.keys if one is not None]
        elif key is not None:
            found.append(ast.literal_eval(key))
        else:  # **counts: what the function put into it
            found += [name for name in _keys(function) if name not in found]
    return list(dict.fromkeys(found))


def _tree(function: Callable[..., Any]) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
