"""Errors that leave an audit without an answer."""

from __future__ import annotations

import errno
from typing import Literal

#: usage: the arguments are wrong. configuration: FILE is wrong, or an extra is missing.
#: inputs: evidence is unreadable, altered or missing. gap: the history lacks rows of the window.
#: window: the window is not closed yet. engine: Spark or the disk failed.
Reason = Literal["usage", "configuration", "inputs", "gap", "window", "engine"]
#: Reasons why a result withholds the verdict. The last two reasons occur only if nothing was judged.
ReasonWithheld = Literal["inputs", "gap", "window", "configuration", "engine"]


class AuditError(Exception):
    """Error of an audit without an answer (exit code 2).

    The message says in one or two sentences what is wrong and what to do.
    """

    exit_code = 2

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason: Reason = reason
        super().__init__(message)


class SourceAwayError(AuditError):
    """Error of a database or object store that did not answer to the end. A later attempt may succeed."""

    def __init__(self, source: str, message: str) -> None:
        """`source` is the option that named the database or object store, without secrets."""
        self.source = source
        super().__init__("inputs", message)


#: Errors of a disk. Other errors of a path, such as a missing right, mean that the arguments are wrong.
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def unwritable(what: str, error: OSError) -> AuditError:
    """Makes the error for an OSError that kept `what` from being written.

    The reason is "engine" if the disk is full or broken, and "usage" if another place would work.
    """
    if error.errno in _DISK_ERRORS:
        return AuditError("engine", f"{what}: {error.strerror}; make room or mend it, and run again: nothing was kept")
    return AuditError("usage", f"{what}: {error.strerror or error}; name a place that can be written")
