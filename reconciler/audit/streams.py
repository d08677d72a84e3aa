"""Standard output and standard error, which may be files on a full disk: neither makes the exit code a wrong one.

Python by itself would end with 1, which means violations, or with 120.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def tell(text: str) -> None:
    """Lines for people, on standard error; lost where it cannot be written."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def answer(text: str) -> bool:
    """The answer, on standard output; False where not all of it could be written, and standard error says so."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout)
        tell(f"reconciler: no answer (engine): standard output cannot be written: {error.strerror or error}\n")
        return False
    return True


def _give_up(stream: TextIO) -> None:
    """What still waits in the stream goes nowhere: at its end Python would try again, fail, and exit with 120."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
