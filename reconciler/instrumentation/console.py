"""The one place of the reconciler that prints: what comes from outside is made visible here.

The audit, a process that does not load the reconciler's code, has its own (audit/streams.py); a test keeps it at these.
"""

from __future__ import annotations

import getpass
import os
import sys
from typing import TYPE_CHECKING, TextIO

from reconciler.contract.visible_text import visible_line

if TYPE_CHECKING:
    from rich.console import Console

#: A file has no width: wide enough for a unique key, two times and a sentence in one row.
WIDTH_WITHOUT_TERMINAL = 160


def say(*lines: str) -> None:
    """Lines of the answer, on standard output."""
    _write(sys.stdout, "".join(f"{visible_line(line)}\n" for line in lines))


def remark(*lines: str) -> None:
    """Lines for people, on standard error: never data."""
    _write(sys.stderr, "".join(f"{visible_line(line)}\n" for line in lines))


def ask(question: str) -> bool | None:
    """Whether a person says yes to a question on standard error; None: there was no answer."""
    _write(sys.stderr, visible_line(question))
    answer = sys.stdin.readline()
    if not answer:
        remark("")
        return None
    return answer.strip().lower() in {"y", "yes"}


def ask_secret(question: str) -> str:
    """What a person at the terminal answers, which is not shown while it is typed."""
    return getpass.getpass(visible_line(question))


def people() -> Console:
    """A console for progress on a terminal, on standard error; honours NO_COLOR."""
    return console(to_people=True)


def console(*, to_people: bool = False) -> Console:
    """Standard output, or standard error, with a width and styles. What is given to it must be visible already.

    In a pipe it is as wide as the terminal that the person sits at, where there is one.
    """
    from rich.console import Console  # slow to load

    is_known = os.environ.get("COLUMNS", "").isdigit() or any(os.isatty(descriptor) for descriptor in (0, 1, 2))
    width = None if is_known else WIDTH_WITHOUT_TERMINAL
    return Console(stderr=to_people, highlight=False, markup=False, emoji=False, width=width)


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()
