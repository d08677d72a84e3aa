"""Secrets that can be found again: every one that a deployment has begins with MARK, and nothing written may hold it.

The whole acceptance suite runs with them, and tests/acceptance/leak_watch.py searches all that is written: outputs of
commands and services, logs, databases, history, evidence, statements, pages, the lists of processes. Only folders that
are named FOLDER are left out: they hold the files that settings name as the secrets' own.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import sqlalchemy as sa

#: Of this process alone: tests that run beside it do not find what it plants.
MARK = f"MARKED0SECRET0{uuid4().hex[:8]}0"
#: Folder of the files that hold secrets, by the settings.
FOLDER = "secrets"
#: Login of Redis that deployments use.
REDIS_LOGIN = "marked"


def marked(name: str) -> str:
    """A secret: letters, digits, nothing that an encoding of URLs would change."""
    return f"{MARK}{name}0{uuid4().hex}"


REDIS_PASSWORD = marked("redis")

_RAW = MARK.encode()
#: Forms in which a text is written by mistake; base64 has three, by the number of bytes before it.
_FORMS = (
    _RAW,
    MARK.encode("utf-16-le"),
    _RAW.hex().encode(),
    _RAW.hex().upper().encode(),
    *(base64.b64encode(b"\0" * before + _RAW)[4 if before else 0 : -4] for before in range(3)),
)


def redis_options(folder: Path) -> dict[str, str]:
    """For RedisServer: a second user, who may do everything; the one without a name is for the tests."""
    file = folder / FOLDER / "users.acl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"user default on nopass ~* &* +@all\nuser {REDIS_LOGIN} on >{REDIS_PASSWORD} ~* &* +@all\n")
    return {"aclfile": str(file)}


def with_login(redis_url: str) -> str:
    """The URL with the marked login."""
    return redis_url.replace("://", f"://{REDIS_LOGIN}:{REDIS_PASSWORD}@")


def is_marked(content: bytes) -> bool:
    """Whether a marked secret is in it, in any form."""
    return any(form in content for form in _FORMS)


def require_unmarked(*texts: str) -> None:
    """Fails if one of the texts holds a marked secret, without the text."""
    found = [text.index(MARK) for text in texts if MARK in text]
    assert not found, f"a secret at {found} of a text"


def require_no_secret_in_files(folder: Path) -> None:
    """Fails if a file below the folder holds a marked secret, without those of secrets."""
    found = [str(path.relative_to(folder)) for path in _files(folder) if any(map(is_marked, _contents(path)))]
    assert not found, f"a secret in files: {', '.join(found)}"


def require_no_secret_in_tables(url: str) -> None:
    """Fails if a row of a database that is no file holds a marked secret."""
    engine = sa.create_engine(url)
    tables = sa.MetaData()
    try:
        with engine.connect() as connection:
            tables.reflect(connection)
            found = [
                table.name
                for table in tables.sorted_tables
                if any(is_marked(_bytes(value)) for row in connection.execute(sa.select(table)) for value in row)
            ]
    finally:
        engine.dispose()
    assert tables.tables, "the database has tables"
    assert not found, f"a secret in tables: {', '.join(found)}"


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


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
