"""Secrets that can be found again: every one that a deployment has begins with MARK, and nothing written may hold it.

The whole acceptance suite runs with them. Searched are the outputs of commands and services, the lists of processes,
and at the end of a deployment all files of its folder: logs, databases, history, evidence, statements, pages. Only the
files that settings name as the secrets' own are left out.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq

MARK = "MARKED0SECRET0"
#: Folder of the files that hold secrets, by the settings.
FOLDER = "secrets"
#: Login of Redis that deployments use.
REDIS_LOGIN = "marked"


def marked(name: str) -> str:
    """A secret: letters, digits, nothing that an encoding of URLs would change."""
    return f"{MARK}{name}0{uuid4().hex}"


REDIS_PASSWORD = marked("redis")
#: For RedisServer: a second user, who may do everything; the one without a name is for the tests.
REDIS_OPTIONS = {"user": f"{REDIS_LOGIN} on >{REDIS_PASSWORD} ~* &* +@all"}

_RAW = MARK.encode()
#: Forms in which a text is written by mistake; base64 has three, by the number of bytes before it.
_FORMS = (
    _RAW,
    MARK.encode("utf-16-le"),
    _RAW.hex().encode(),
    _RAW.hex().upper().encode(),
    *(base64.b64encode(b"\0" * before + _RAW)[4 if before else 0 : -4] for before in range(3)),
)


def with_login(redis_url: str) -> str:
    """The URL with the marked login."""
    return redis_url.replace("://", f"://{REDIS_LOGIN}:{REDIS_PASSWORD}@")


def require_unmarked(*texts: str) -> None:
    """Fails if one of the texts holds a marked secret, without the text."""
    found = [text.index(MARK) for text in texts if MARK in text]
    assert not found, f"a secret at {found} of an output or of a list of processes"


def leaks(folder: Path) -> list[Path]:
    """Files below the folder that hold a marked secret, without those of secrets."""
    return [path for path in _files(folder) if any(form in piece for piece in _contents(path) for form in _FORMS)]


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and FOLDER not in path.relative_to(folder).parts:
            yield path


def _contents(path: Path) -> Iterable[bytes]:
    content = path.read_bytes()
    yield content
    if content.startswith(b"PAR1"):
        table = pq.read_table(path)
        yield repr(table.to_pylist()).encode() + repr(table.schema.metadata).encode()
    elif content.startswith(b"\x1f\x8b"):
        yield gzip.decompress(content)
