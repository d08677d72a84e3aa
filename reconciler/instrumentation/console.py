"""The only module of the reconciler that prints. Invisible characters in text from outside are printed as their
numbers.

A command continues if the reader of its output has gone, the disk is full or a stream is closed, because its work
matters more than its output. The exit code reports the work, or OUTPUT_LOST if only the output failed.

The audit prints by itself (audit/streams.py), because its process does not load the reconciler's code. A test fails if
any other module prints.
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

#: Width of output to a file: enough for a unique key, two times and a sentence in one row.
WIDTH_WITHOUT_TERMINAL = 160
#: Exit code of a command whose work succeeded, but whose standard output was not written. An incomplete answer is no
#: answer.
OUTPUT_LOST = 2
_LINE_END = ord("\n")


def say(*lines: str) -> None:
    """Writes lines of the answer to standard output."""
    _write(sys.stdout, "".join(f"{visible_line(line)}\n" for line in lines))


def remark(*lines: str) -> None:
    """Writes lines for people to standard error. Data goes to standard output."""
    _write(sys.stderr, "".join(f"{visible_line(line)}\n" for line in lines))


def ask(question: str) -> bool | None:
    """Asks a question on standard error. Returns True for yes, False for another answer, and None without an answer."""
    _write(sys.stderr, visible_line(question))
    answer = sys.stdin.readline()
    if not answer:
        remark("")
        return None
    return answer.strip().lower() in {"y", "yes"}


def ask_secret(question: str) -> str:
    """Asks the person at the terminal, and does not show the answer while it is typed."""
    return getpass.getpass(visible_line(question))


def people() -> Console:
    """Makes a console on standard error for progress on a terminal. The console honours NO_COLOR."""
    return console(to_people=True)


def console(*, to_people: bool = False) -> Console:
    """Makes a console with a width and styles. The caller has replaced the invisible characters in its text.

    `to_people`: the console writes to standard error instead of standard output. In a pipe, the console is as wide as
    the person's terminal, if there is one.
    """
    from rich.console import Console  # slow to load

    is_known = os.environ.get("COLUMNS", "").isdigit() or any(os.isatty(descriptor) for descriptor in (0, 1, 2))
    width = None if is_known else WIDTH_WITHOUT_TERMINAL
    return Console(stderr=to_people, highlight=False, markup=False, emoji=False, width=width)


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


class ForgivingFile(io.RawIOBase):
    """Writes to a file descriptor until a write fails. Closing this object leaves the descriptor open.

    With `tries_again`, a failed write loses its own data only: the log of a process goes on once its disk has room.
    """

    def __init__(self, descriptor: int, *, tries_again: bool = False) -> None:
        self._descriptor = descriptor
        self._tries_again = tries_again
        self._is_gone = False
        #: True: the last line was written in part.
        self._is_cut = False
        #: Error that kept text from being written. None: all text was written, or the reader closed the pipe.
        self.error: OSError | None = None

    def writable(self) -> bool:
        """True, always."""
        return True

    def fileno(self) -> int:
        """Returns the descriptor, for questions about its terminal."""
        return self._descriptor

    def isatty(self) -> bool:
        """True if the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]  # typeshed: any buffer
        """Writes all data. After an error it discards data: the rest of these data, or all data from now on."""
        view = memoryview(b"\n" + data if self._is_cut else data)
        written = 0
        while written < len(view) and not self._is_gone:
            try:
                written += os.write(self._descriptor, view[written:])
            except BlockingIOError:  # another process has set the terminal or the pipe to non-blocking
                select.select([], [self._descriptor], [])
            except BrokenPipeError:  # head or less has read enough
                self._is_gone = True
            except OSError as error:
                self.error = error
                if self._tries_again:
                    if written:
                        self._is_cut = view[written - 1] != _LINE_END
                    return len(data)
                self._is_gone = True
        self._is_cut = False
        return len(data)


class StandardStreams:
    """Replaces the standard streams of this process by safe ones. It is created once, while the process starts and has
    one thread."""

    def __init__(self) -> None:
        for number in (0, 1, 2):
            _occupy(number)
        if sys.stdin is None:
            sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
        self._output = ForgivingFile(1)
        sys.stdout = _text(self._output, sys.stdout, is_line_buffered=os.isatty(1))
        sys.stderr = _text(ForgivingFile(2, tries_again=True), sys.stderr, is_line_buffered=True)

    def exit_code(self, code: int) -> int:
        """Returns OUTPUT_LOST if `code` is 0 and output was lost. Otherwise returns `code`."""
        sys.stdout.flush()
        if self._output.error is None:
            return code
        remark(f"reconciler: standard output is incomplete: {self._output.error.strerror}")
        return code or OUTPUT_LOST


def _occupy(number: int) -> None:
    """Opens /dev/null in place of a closed descriptor (`>&-`). Otherwise the next socket would get its number, and
    output would go to the socket."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)  # the system assigns the lowest free number, which is `number`
        # The audit, which replaces this process, needs the descriptor open.
        os.set_inheritable(nowhere, True)  # noqa: FBT003 - os takes it in this form


def _text(raw: ForgivingFile, before: TextIO | None, *, is_line_buffered: bool) -> io.TextIOWrapper:
    encoding = (before.encoding if before is not None else None) or "utf-8"
    # Letters that an old terminal lacks are written as escapes.
    buffered = io.BufferedWriter(raw)  # type: ignore[type-var]  # typeshed: write() of any buffer
    return io.TextIOWrapper(buffered, encoding=encoding, errors="backslashreplace", line_buffering=is_line_buffered)
