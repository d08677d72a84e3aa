"""Why an audit has no answer."""

from __future__ import annotations

from typing import Literal

#: usage: wrong arguments; configuration: FILE or an extra; inputs: unreadable, altered or missing evidence;
#: gap: history lacks rows of the window; window: not closed yet; engine: Spark failed.
Reason = Literal["usage", "configuration", "inputs", "gap", "window", "engine"]


class AuditError(Exception):
    """No answer (exit 2). The message names what is wrong and what to do about it, in one or two sentences."""

    exit_code = 2

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason: Reason = reason
        super().__init__(message)
