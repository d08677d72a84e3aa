"""Tells what this process or its host lacks from what is wrong with a server.

A process without a free file descriptor opens no connection, and a process without a free thread begins no work,
whatever its servers do. Such an error says nothing about a server.
"""

from __future__ import annotations

import errno
import os
import re
import socket

from reconciler.errors import with_causes

#: Number of the system's error -> what a person can do.
_REMEDIES = {
    errno.EMFILE: "raise the limit of open files of this process (LimitNOFILE, ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this host (fs.file-max)",
    errno.ENOMEM: "give this host more memory",
    errno.ENOBUFS: "give this host more memory",
}
#: The text of Python's error if no thread starts, and the remedy.
_NO_THREAD = "can't start new thread"
_MORE_THREADS = "raise the limit of threads of this process (TasksMax, ulimit -u), or give this host more memory"
#: Texts of clients that keep no error of the system: redis-py behind Sentinels, and libpq.
_TEXTS = (
    (re.compile(rf"Error ({'|'.join(map(str, _REMEDIES))}) connecting to "), None),
    *((re.compile(rf"could not create socket: {re.escape(os.strerror(one))}"), one) for one in _REMEDIES),
)
#: Texts of SQLite and libpq that tell no cause. The system's look-up of a name tells none, either.
_WITHOUT_CAUSE = ("unable to open database file", "no error details available")


def lacking(error: BaseException | None) -> str:
    """Returns the remedy if the error, or an error that caused it, is of this process or its host. Otherwise returns an
    empty text."""
    for one in with_causes(error):
        number = one.errno if isinstance(one, OSError) else None
        if isinstance(one, socket.gaierror) or any(said in str(one) for said in _WITHOUT_CAUSE):
            number = _why_nothing_opens()
        number = _number_in(str(one)) if number not in _REMEDIES else number
        if number in _REMEDIES:
            return _REMEDIES[number]
        if isinstance(one, RuntimeError) and str(one) == _NO_THREAD:
            return _MORE_THREADS
    return ""


def _number_in(text: str) -> int | None:
    for form, number in _TEXTS:
        found = form.search(text)
        if found is not None:
            return int(found[1]) if number is None else number
    return None


def _why_nothing_opens() -> int | None:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno
    return None
