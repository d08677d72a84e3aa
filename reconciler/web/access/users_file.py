"""The file of users and tokens. It is read again after a change, and replaced in one step."""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reconciler.clock import Clock, SystemClock
from reconciler.contract.named_files import require_file
from reconciler.errors import ConfigurationError, DependencyAway
from reconciler.web.access.open_files import warn_if_open
from reconciler.web.access.users import WebUsers, read_users, written_users

logger = logging.getLogger(__name__)

#: Longest delay before a change is seen.
LOOK_SECONDS = 1.0
FILE_BYTES_MAX = 8 << 20
#: Tries and pauses while a change waits for another change.
LOCK_TRIES_MAX = 100
LOCK_PAUSE_SECONDS = 0.1


class UsersFile:
    """The present users. Threads share this object.

    An unreadable file admits nobody. Otherwise a user who was just removed could stay because of a wrong comma.
    """

    def __init__(self, path: Path, *, clock: Clock) -> None:
        """Raises ConfigurationError if the file cannot be read."""
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._content = _content(path)
        self._found: WebUsers | ConfigurationError = read_users(self._content)
        self._looked_at = clock.monotonic_seconds()
        warn_if_open(path)

    def current(self) -> WebUsers:
        """Returns the present users. Raises DependencyAway if the file cannot be read any more."""
        with self._lock:
            if self._clock.monotonic_seconds() - self._looked_at >= LOOK_SECONDS:
                self._look()
                self._looked_at = self._clock.monotonic_seconds()
            found = self._found
        if isinstance(found, ConfigurationError):
            raise DependencyAway("the file of users cannot be read, so nobody is let in; the log says why")
        return found

    def _look(self) -> None:
        former = self._found
        try:
            content = _content(self._path)
            if content != self._content or isinstance(former, ConfigurationError):
                self._found = read_users(content)
                self._content = content
                logger.info("web_users_changed", extra={"users": len(self._found.users)})
        except ConfigurationError as error:
            self._found = error
            if str(former) != str(error):
                logger.warning("web_users_unreadable: %s; nobody is let in", error)


def load_users(path: Path) -> WebUsers:
    """Loads the users of a file. Raises ConfigurationError for an unusable file."""
    return read_users(_content(path))


def change_users(path: Path, change: Callable[[WebUsers], WebUsers]) -> WebUsers:
    """Replaces the file by a file with changed users. Only its owner can read the new file. A missing file counts as a
    file without users.

    The file's owner stays. A new file gets the folder's owner. If two changes come at the same time, the second one
    waits. A crash leaves either the former file or the new file. Raises ConfigurationError, and what `change` raises.
    """
    path = path.resolve()
    try:
        with _locked(path.parent):
            former = load_users(path) if path.exists() else WebUsers()
            changed = change(former)
            _replace(path, written_users(changed))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from error
    return changed


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(LOCK_TRIES_MAX):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                SystemClock().sleep(LOCK_PAUSE_SECONDS)
        else:
            raise ConfigurationError(f"{folder}: another process keeps this folder locked; nothing is changed")
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    owned = path if path.exists() else path.parent
    owner = owned.stat()
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Even if root runs the command, the service, which has a login of its own, must be able to read the file.
            with suppress(PermissionError):
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _content(path: Path) -> bytes:
    try:
        require_file(path)
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        remedy = "`reconciler web user add NAME --role admin` makes it"
        raise ConfigurationError(f"web.users_file = {str(path)!r}: no such file; {remedy}") from None
    except OSError as error:
        raise ConfigurationError(f"web.users_file = {str(path)!r}: cannot be read: {error.strerror}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigurationError(f"web.users_file = {str(path)!r}: more than {FILE_BYTES_MAX} bytes")
    return content
