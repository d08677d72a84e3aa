"""Places of history, evidence and exports. A place is a local path, or a URL that Arrow reads.

Some places must be local. The driver and every executor take the settings of object stores from environment variables
(AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and the like, GOOGLE_APPLICATION_CREDENTIALS).
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path

from pyarrow import fs as arrow_fs

#: Schemes of URLs that Arrow's file systems read.
READABLE = ("file", "hdfs", "viewfs", "s3", "gs", "gcs", "abfs", "abfss")
#: Another program's name of a scheme -> Arrow's name of the scheme.
_OTHER_NAMES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}


def place_of(path: str) -> str:
    """Makes a path absolute, because workers have a working directory of their own. A URL stays as it is."""
    return path if "://" in path else os.path.abspath(path)


def open_folder(path: str) -> tuple[arrow_fs.FileSystem, str]:
    """Opens the file system of a place, and returns the path in it. Raises OSError.

    Raises ValueError for an unknown URL.
    """
    if "://" in path:
        found: tuple[arrow_fs.FileSystem, str] = arrow_fs.FileSystem.from_uri(path)
        return found
    return arrow_fs.LocalFileSystem(), path


def bytes_at(filesystem: arrow_fs.FileSystem, path: str) -> bytes:
    """Reads a whole file. Raises OSError.

    A special file also raises OSError, because a FIFO would keep the reader waiting.
    """
    is_local = isinstance(filesystem, arrow_fs.LocalFileSystem)
    if is_local and filesystem.get_file_info(path).type == arrow_fs.FileType.Unknown:
        raise OSError(f"{path} is no regular file: not read")
    with filesystem.open_input_stream(path) as stream:
        data: bytes = stream.read()
    return data


def unreadable(place: str) -> str | None:
    """Returns the reason why no file can be read at a place: the URL has an unknown scheme.

    None: the scheme is known.
    """
    scheme, is_url, rest = place.partition("://")
    if not is_url or scheme in READABLE:
        return None
    if scheme in _OTHER_NAMES:
        return f"{scheme}: is another program's name for it; write {_OTHER_NAMES[scheme]}://{rest}"
    return f"{scheme}: is none of the file systems that are read here: a local path, {', '.join(READABLE)}"


def readable_place(text: str) -> str:
    """Checks an option's path or URL and returns it."""
    why = unreadable(text)
    if why is not None:
        raise ArgumentTypeError(f"{text}: {why}")
    return text


def local_path(text: str) -> Path:
    """Makes the path on this machine that an option names.

    Refuses a URL such as "s3a://bucket/x", which would become a folder "s3a:".
    """
    if "://" in text:
        raise ArgumentTypeError(
            f"{text}: this must be a local path (an output is put in place in one step, which no object store can); "
            "copy from or to it before or after the command"
        )
    return Path(text)
