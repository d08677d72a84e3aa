"""Files that people name: in settings, in URLs and by options. A FIFO or a device would keep its reader waiting."""

from __future__ import annotations

import errno
import os
import stat

_KINDS = (
    (stat.S_ISFIFO, "Is a FIFO"),
    (stat.S_ISCHR, "Is a device"),
    (stat.S_ISBLK, "Is a device"),
    (stat.S_ISSOCK, "Is a socket"),
    (stat.S_ISDIR, "Is a directory"),
)
#: Beginnings of paths that are read, whatever they name. A pipe that a shell has opened, as in `--config <(command)`,
#: ends with its command.
_READ_ALWAYS = ("/dev/fd/", "/dev/stdin", "/dev/null", "/proc/")


def require_file(path: str | os.PathLike[str]) -> None:
    """Raises OSError if the path names something that is no file, or nothing. The error's `strerror` says what it
    names. Raises ValueError for a text that cannot be a path."""
    mode = os.stat(path).st_mode
    kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), None)
    if kind is not None and not os.fspath(path).startswith(_READ_ALWAYS):
        raise OSError(errno.EINVAL, kind, os.fspath(path))


def why_no_file(path: str) -> str:
    """Returns what the path names if that is no file. Empty for a file, and for a path that names nothing yet."""
    try:
        require_file(path)
    except OSError as error:
        return str(error.strerror) if error.errno == errno.EINVAL else ""
    except ValueError:
        return "is no path"
    return ""
