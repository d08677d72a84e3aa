"""Errors of audits that have no answer."""

from __future__ import annotations

import errno
from typing import Literal

#: usage: wrong arguments; configuration: FILE or an extra; inputs: unreadable, altered or missing evidence;
#: gap: history lacks rows of the window; window: not closed yet; engine: Spark failed.
Reason = Literal["usage", "configuration", "inputs", "gap", "window", "engine"]
#: Reasons of results whose verdict is withheld. The last two occur only if nothing was judged.
ReasonWithheld = Literal["inputs", "gap", "window", "configuration", "engine"]


class AuditError(Exception):
    """No answer (exit 2). The message names what is wrong and what to do about it, in one or two sentences."""

    exit_code = 2

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason: Reason = reason
        super().__init__(message)


class SourceAwayError(AuditError):
    """Database or object store that did not answer to the end, and may do so when it is asked again."""

    def __init__(self, source: str, message: str) -> None:
        """`source`: the option that named it, without secrets."""
        self.source = source
        super().__init__("inputs", message)


#: Errors of a disk. Other errors of a path (no right, read-only, a file in the way) are wrong arguments.
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def unwritable(what: str, error: OSError) -> AuditError:
    """Makes the error for `what`, which could not be written.

    "engine": the disk is full or broken. "usage": another place would work.
    """
    if error.errno in _DISK_ERRORS:
        return AuditError("engine", f"{what}: {error.strerror}; make room or mend it, and run again: nothing was kept")
    return AuditError("usage", f"{what}: {error.strerror or error}; name a place that can be written")
