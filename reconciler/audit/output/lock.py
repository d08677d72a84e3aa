"""Lock that lets one process at a time write. The lock ends with the process."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.audit.errors import AuditError


@contextmanager
def locked(name: Path, refusal: str) -> Iterator[None]:
    """Holds the lock until the block ends or the process dies.

    Raises AuditError("usage", refusal) if another process holds it, and OSError.
    """
    descriptor = _lock(name, refusal)
    try:
        yield
    finally:
        # The file is removed while the lock is held. No process may lock a file that is about to be removed (see
        # _lock).
        name.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(name: Path, refusal: str) -> int:
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise AuditError("usage", refusal) from error
        # The earlier holder removes the file. A lock on a file without a name keeps no process out.
        try:
            if os.fstat(descriptor).st_ino == os.stat(name).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)
