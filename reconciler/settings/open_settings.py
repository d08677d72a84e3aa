"""Settings files whose passwords every login of the machine may read."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reconciler.contract.urls import holds_password
from reconciler.settings.secret_settings import SECRET_NAMES, sections

#: Without a password, the URL of a database or of Redis is no secret.
_URLS = frozenset({"redis.url", "ledger.url", "producers[].outbox_url", "subscriptions[].inbox_url"})


def open_passwords(file: Path) -> tuple[str, ...]:
    """Returns the names of settings whose passwords the file holds, if every login of this machine may read the file.

    The file must be a settings file that was read without an error. Raises OSError.
    """
    if not file.stat().st_mode & stat.S_IROTH:
        return ()
    document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    return tuple(name for name in SECRET_NAMES if any(_is_password(name, value) for value in _values(document, name)))


def _values(document: dict[str, Any], name: str) -> Iterator[Any]:
    *names, last = name.split(".")
    for _, section in sections(document, names, ()):
        value = section.get(last)
        yield from value if isinstance(value, list) else [value]


def _is_password(name: str, value: object) -> bool:
    return isinstance(value, str) and (name not in _URLS or holds_password(value))
