"""Standard streams that do not end a command in its middle: a reader that has gone, a full disk, a closed stream.

The work of a command matters more than its reader: it goes on, and its exit code stays that of its work.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TextIO

from reconciler.instrumentation.console import tell

#: Exit code where standard output could not be written and all else went well: an incomplete answer is no answer.
OUTPUT_LOST = 2


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
        tell(f"reconciler: standard output is incomplete: {self._output.error.strerror}")
        return code or OUTPUT_LOST


def _occupy(number: int) -> None:
    """A descriptor that was closed (`>&-`) would be given to the next socket or database, and output would go there."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
        os.set_inheritable(nowhere, True)  # for the audit, which this process becomes


def _text(raw: ForgivingFile, before: TextIO | None, *, is_line_buffered: bool) -> io.TextIOWrapper:
    encoding = (before.encoding if before is not None else None) or "utf-8"
    # Letters that an old terminal does not have are written as escapes.
    buffered = io.BufferedWriter(raw)  # type: ignore[type-var]  # typeshed: write() of any buffer
    return io.TextIOWrapper(buffered, encoding=encoding, errors="backslashreplace", line_buffering=is_line_buffered)
