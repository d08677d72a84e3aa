"""The one place of the reconciler that prints: what comes from outside is made visible here.

Its standard streams do not end a command in its middle: a reader that has gone, a full disk, a closed stream. The work
of a command matters more than its reader: it goes on, and its exit code stays that of its work.

The audit, a process that does not load the reconciler's code, has its own (audit/streams.py); a test keeps it at these.
"""

from __future__ import annotations

import getpass
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from reconciler.contract.visible_text import visible_line

if TYPE_CHECKING:
    from rich.console import Console

#: A file has no width: wide enough for a unique key, two times and a sentence in one row.
WIDTH_WITHOUT_TERMINAL = 160
#: Exit code where standard output could not be written and all else went well: an incomplete answer is no answer.
OUTPUT_LOST = 2


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


class ForgivingFile(io.RawIOBase):
    """A file descriptor that is written to as long as it takes anything. Not closed with this object."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_gone = False
        #: Why text was not written. None: all was written, or its reader closed the pipe.
        self.error: OSError | None = None

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor, for questions about its terminal."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether people look."""
        return os.isatty(self._descriptor)

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]  # typeshed: any buffer
        """All of it, or none any more once something went wrong."""
        view = memoryview(data)
        written = 0
        while written < len(view) and not self._is_gone:
            try:
                written += os.write(self._descriptor, view[written:])
            except BlockingIOError:  # another process has set the terminal or the pipe to non-blocking
                select.select([], [self._descriptor], [])
            except BrokenPipeError:  # head, less: it has seen enough
                self._is_gone = True
            except OSError as error:
                self._is_gone, self.error = True, error
        return len(view)


class StandardStreams:
    """The streams of this process, made safe. Made once, at its start, while it has one thread."""

    def __init__(self) -> None:
        for number in (0, 1, 2):
            _occupy(number)
        if sys.stdin is None:
            sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
        self._output = ForgivingFile(1)
        sys.stdout = _text(self._output, sys.stdout, is_line_buffered=os.isatty(1))
        sys.stderr = _text(ForgivingFile(2), sys.stderr, is_line_buffered=True)

    def exit_code(self, code: int) -> int:
        """The exit code of a command that ended with `code`: another one if its output was lost."""
        sys.stdout.flush()
        if self._output.error is None:
            return code
        remark(f"reconciler: standard output is incomplete: {self._output.error.strerror}")
        return code or OUTPUT_LOST


def _occupy(number: int) -> None:
    """A descriptor that was closed (`>&-`) would be given to the next socket or database, and output would go there."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
        # For the audit, which this process becomes.
        os.set_inheritable(nowhere, True)  # noqa: FBT003 - os takes it in this form


def _text(raw: ForgivingFile, before: TextIO | None, *, is_line_buffered: bool) -> io.TextIOWrapper:
    encoding = (before.encoding if before is not None else None) or "utf-8"
    # Letters that an old terminal does not have are written as escapes.
    buffered = io.BufferedWriter(raw)  # type: ignore[type-var]  # typeshed: write() of any buffer
    return io.TextIOWrapper(buffered, encoding=encoding, errors="backslashreplace", line_buffering=is_line_buffered)
