"""Runs the blocks of a page, in their order, as tests/page_blocks.py says what is done with each.

One bash for all shell blocks, so that exports and background jobs live on. Output that a page shows is compared: its
lines in their order, tables by their words; times, keys and long numbers are other ones each time, and `...` stands
for what a page leaves out.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import uuid4

import psycopg

from reconciler.settings.file import load_settings
from tests.page_blocks import DOCS, Block, Purpose, blocks_of
from tests.polling import PATIENCE, eventually

__all__ = [
    "Beginning",
    "Database",
    "PostgresDatabase",
    "Shell",
    "SqliteDatabase",
    "run_page",
    "run_step",
    "run_steps",
    "shell_of",
    "steps_here",
    "steps_of",
]

BLOCK_SECONDS = 60.0
NIGHT_BLOCK_SECONDS = 300.0
SOON_SECONDS = 90.0
PAUSE_SECONDS = 0.3
#: No table is wrapped, and none is printed as records.
WIDTH = "500"

_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d(T[\d:.]+Z?)?"), "TIME"),
    (re.compile(r"\b[0-9A-Fa-f]{16,}\b"), "KEY"),
    (re.compile(r"\b(\d+(\.\d+)+|\d{2,})\b"), "N"),
    (re.compile(r'\b(round|shard|request|queue|queue_offset"?:?) \d+\b'), r"\1 N"),
)
_BY_NIGHT = re.compile(r"^ *<!-- not run: by night\b.*-->\n", re.MULTILINE)
_FRAME = re.compile(r"[\u2500-\u257f]+")


class Database(Protocol):
    """Where sql blocks run."""

    def execute(self, statement: str, values: Mapping[str, int | str]) -> object:
        """One statement, committed. Where it has parameters `?`, it is prepared only."""


@dataclass(kw_only=True)
class Beginning:
    """What a reader has when the page begins."""

    #: Where the first command runs.
    folder: Path
    #: What the page writes -> what stands here in its place: ports and folders.
    here: Mapping[str, str] = field(default_factory=dict)
    #: Variables of the shell.
    variables: Mapping[str, str] = field(default_factory=dict)
    #: The settings file that pieces of settings are read with.
    settings: Path | None = None
    #: Names that python blocks begin with.
    names: dict[str, Any] = field(default_factory=dict)
    #: What `on:` names.
    databases: dict[str, Database] = field(default_factory=dict)
    #: What `given:` names.
    given: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    #: What `in:` names.
    shells: Mapping[str, Shell] = field(default_factory=dict)


@dataclass(frozen=True)
class SqliteDatabase:
    """A file of the page's deployment."""

    path: Path

    def execute(self, statement: str, values: Mapping[str, int | str]) -> object:
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            if "?" in statement:
                return database.execute(f"EXPLAIN {statement}", [None] * statement.count("?")).fetchall()
            return database.execute(statement, dict(values)).fetchall()


@dataclass(frozen=True)
class PostgresDatabase:
    """A database of a PostgreSQL server."""

    url: str

    def execute(self, statement: str, values: Mapping[str, int | str]) -> object:
        with psycopg.connect(self.url.replace("+psycopg", "")) as connection:
            if "?" in statement:
                numbers = iter(range(1, statement.count("?") + 1))
                statement = f"PREPARE page AS {re.sub(r'[?]', lambda _: f'${next(numbers)}', statement)}"
            return connection.execute(re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement), dict(values) or None)


class Shell:
    """One bash. Ends with the block, and every job with it."""

    def __init__(
        self,
        folder: Path,
        *,
        within: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        block_seconds: float = BLOCK_SECONDS,
    ) -> None:
        """`within`: words before the shell's; it and all its children end with the block."""
        self._block_seconds = block_seconds * PATIENCE
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
        programs = f"{Path(sys.executable).parent}:{clean.get('PATH', '')}"
        commands, self._commands = os.pipe()  # not its standard input, which a command could read
        self._process = subprocess.Popen(
            [*within, "bash", "--norc", f"/dev/fd/{commands}"],
            cwd=folder,
            env={**clean, "PATH": programs, "COLUMNS": WIDTH, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[commands],
            start_new_session=True,
        )
        os.close(commands)
        self.run("trap 'failed=$?' ERR")

    def run(self, commands: str) -> tuple[int, str]:
        """Exit code of the last command that failed, else 0, and everything that was printed."""
        mark = f"--{uuid4().hex}"
        os.write(self._commands, f"failed=0\n{commands}\necho {mark} $failed\n".encode())  # less than a pipe holds
        printed = self._read_until(mark)
        output, _, code = printed.rpartition(mark)
        return int(code), output

    def _read_until(self, mark: str) -> str:
        assert self._process.stdout is not None
        read, deadline = b"", time.monotonic() + self._block_seconds
        while not re.search(rf"{mark} \d+\n".encode(), read):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
            assert part, f"the shell says nothing more: {read.decode(errors='replace')}"
            read += part
        return read.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # the session of its own: the shell and its jobs
        self._process.wait(60)
        os.close(self._commands)
        assert self._process.stdout is not None
        self._process.stdout.close()


def run_page(page: str, beginning: Beginning, *, by_night: bool = False) -> None:
    """Runs it to its end; the first block that does other than the page says is the failure.

    `by_night`: also blocks that are run by night alone, which download packages.
    """
    with shell_of(beginning, by_night=by_night) as shell:
        run_steps(steps_here(page, beginning, by_night=by_night), shell, beginning)


def shell_of(beginning: Beginning, *, by_night: bool = False) -> Shell:
    """One in the page's folder."""
    seconds = NIGHT_BLOCK_SECONDS if by_night else BLOCK_SECONDS
    return Shell(beginning.folder, variables=beginning.variables, block_seconds=seconds)


def steps_here(page: str, beginning: Beginning, *, by_night: bool = False) -> list[tuple[Block, list[str]]]:
    """Of a page, with what stands here in the place of its words."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if by_night:
        text, number = _BY_NIGHT.subn("", text)
        assert number, f"{page} has no block for the night"
    for written, here in beginning.here.items():
        text = here.join(re.split(rf"(?<![\w.]){re.escape(written)}(?!\w)", text))
    return steps_of(page, text)


def run_steps(steps: Iterable[tuple[Block, list[str]]], shell: Shell, beginning: Beginning) -> None:
    """Runs them in their order."""
    for block, outputs in steps:
        if "given" in block.marks:
            beginning.given[block.marks["given"]]()
        _run(block, beginning.shells[block.marks["in"]] if "in" in block.marks else shell, beginning, outputs)


def steps_of(page: str, text: str) -> list[tuple[Block, list[str]]]:
    """Blocks in their order, each with the output that the page shows behind it."""
    steps: list[tuple[Block, list[str]]] = []
    for block in blocks_of(page, text):
        if block.purpose is Purpose.OUTPUT:
            steps[-1][1].append(block.text)
        else:
            steps.append((block, []))
    return steps


def _run(block: Block, shell: Shell, beginning: Beginning, outputs: list[str]) -> None:
    match block.purpose:
        case Purpose.SHELL:
            run_step(shell, block, outputs)
        case Purpose.FILE:
            (beginning.folder / block.marks["file"]).write_text(block.text, encoding="utf-8")
        case Purpose.SETTINGS:
            _accept(block, beginning)
        case Purpose.PYTHON:
            padding = "\n" * block.line  # so that a traceback names the page's own lines
            exec(compile(padding + block.text, str(DOCS / block.page), "exec", dont_inherit=True), beginning.names)
        case Purpose.SQL:
            values = dict(pair.split("=", 1) for pair in block.marks.get("with", "").split())
            for statement in filter(str.strip, block.text.split(";\n")):
                with _told(block):
                    beginning.databases[block.marks["on"]].execute(statement, values)
        case _:
            pass


def run_step(shell: Shell, block: Block, outputs: list[str]) -> None:
    """Runs a shell block, and repeats what it waits for, until it does what the page says."""
    commands, repeated = block.text, ""
    if block.is_polled:  # the page waits for people, this polls
        commands, repeated = re.split(r"sleep \d+; ", commands)
    expected = block.marks.get("soon" if block.is_polled else "shows", "")
    may_end = {int(code) for code in block.marks.get("exit", "0").split(" or ")}

    def judge(commands: str, code: int, output: str) -> None:
        told = f"{block.place}\n{commands}\nexit code {code}\n{output}"
        assert code in may_end, told
        assert expected in output, told
        for shown in outputs:
            missing = list(not_printed(shown, output))
            assert not missing, f"the page shows, and this is not printed: {missing}\n{told}"

    code, output = shell.run(commands)
    if not repeated:
        judge(commands, code, output)
        return
    assert code == 0, f"{block.place}\n{commands}\nexit code {code}\n{output}"

    def is_shown() -> bool:
        code, output = shell.run(repeated)
        try:
            judge(repeated, code, output)
        except AssertionError:
            time.sleep(PAUSE_SECONDS)  # what is waited for needs the processors
            raise
        return True

    eventually(is_shown, within_seconds=SOON_SECONDS, message=f"{block.place}: {repeated}")


def not_printed(shown: str, output: str) -> Iterator[str]:
    """What a page shows and a command did not print: words of tables, or lines in their order."""
    for mask, name in _MASKS:
        shown, output = mask.sub(name, shown), mask.sub(name, output)
    if _FRAME.search(shown):
        words = Counter(_FRAME.sub(" ", shown).split()) - Counter(_FRAME.sub(" ", output).split())
        words.pop("...", None)
        yield from words
        return
    printed = iter(output.splitlines())
    for line in filter(None, map(str.strip, shown.splitlines())):
        begins, _, is_cut = line.partition("...") if line.endswith("...") else (line, "", None)
        if not any(p.strip() == line or (is_cut is not None and p.strip().startswith(begins)) for p in printed):
            yield line


def _accept(block: Block, beginning: Beginning) -> None:
    assert beginning.settings is not None, f"{block.place}: this page has no settings"
    section = block.marks.get("under")
    text = f"[{section}]\n{block.text}" if section else block.text
    changed = beginning.settings.with_suffix(".changed")
    changed.write_text(merged(beginning.settings.read_text(), text))
    with _told(block):
        load_settings(changed, {})
    if "settings" in block.marks:
        changed.rename(beginning.settings)


def merged(settings: str, piece: str) -> str:
    """The settings with the lines of a piece below the headings that it names, in place of those of the same names."""
    lines = settings.splitlines()
    heading = ""
    for line in piece.splitlines():
        if line.startswith("["):
            heading = line.strip()
            if heading.startswith("[[") or heading not in lines:
                lines += ["", heading]
        elif line.strip() and not line.startswith("#"):
            name = line.split("=")[0].strip()
            start = len(lines) - 1 - lines[::-1].index(heading) if heading else -1
            end = next((n for n in range(start + 1, len(lines)) if lines[n].startswith("[")), len(lines))
            lines[start + 1 : end] = [
                line,
                *(old for old in lines[start + 1 : end] if old.split("=")[0].strip() != name),
            ]
    return "\n".join(lines) + "\n"


@contextmanager
def _told(block: Block) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"{block.place}\n{block.text}")
        raise
