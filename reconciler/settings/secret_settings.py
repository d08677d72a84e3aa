"""Settings that are secrets. Each secret may be given as a value, by a file (`..._file`) or by a command
(`..._command`).

`SECRET_NAMES` is the list of all secrets. The rules of what may be shown, the pages and the tests read this list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from reconciler.contract.secret import SecretText
from reconciler.contract.secret_sources import (
    COMMAND_KEEP_SECONDS,
    FILE_KEEP_SECONDS,
    KeptSecret,
    UnreadableSecret,
    read_secret_file,
    run_secret_command,
    secrets_of,
    words_of,
)
from reconciler.contract.urls import HIDDEN, shown_value
from reconciler.errors import InvalidValue

#: The path of each secret. `[]` stands for every section of a list.
SECRET_NAMES = (
    "redis.url",
    "ledger.url",
    "producers[].outbox_url",
    "subscriptions[].inbox_url",
    "unique_key_topic.signature_secret",
    "rocketmq.acl.secret_key",
    "rocketmq.acl.security_token",
    "rocketmq.tls.key_password",
    "notifiers[].url",
    "notifiers[].secret",
)
#: Secrets that may be lists of secrets.
_LISTS = frozenset({"outbox_url", "inbox_url"})
_SOURCES: tuple[Literal["_file", "_command"], ...] = ("_file", "_command")

Place = tuple[str, ...]


def secret_at(path: Place) -> tuple[Place, str] | None:
    """Returns the path of the secret to which a path belongs, and the ending of the name: nothing, `_file` or
    `_command`."""
    for source in ("", *_SOURCES):
        if path and path[-1].endswith(source):
            name = (*path[:-1], path[-1].removesuffix(source) if source else path[-1])
            if ".".join("[]" if part.isdecimal() else part for part in name).replace(".[]", "[]") in SECRET_NAMES:
                return name, source
    return None


def forget_other_sources(section: dict[str, Any], name: str) -> None:
    """Removes the sources of a secret that the file names, because a variable overrides these sources."""
    for source in ("", *_SOURCES):
        section.pop(f"{name}{source}", None)


def read_secrets(document: dict[str, Any], variables: Mapping[Place, str]) -> Iterator[tuple[Place, str]]:
    """Replaces every `..._file` and `..._command` by a SecretText. Leaves out sources that cannot be used, and yields
    the path and the problem of each.

    `variables` maps the path of a setting to the variable that gives its value.
    """
    for path in SECRET_NAMES:
        for where, section in sections(document, path.split(".")[:-1], ()):
            secret = (*where, path.rpartition(".")[2])
            for problem in _read_one(section, secret, variables):
                yield secret, problem


def sections(place: Any, names: list[str], where: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yields path and content of every section with these names below a place. `where`: the path of the place."""
    if not names:
        if isinstance(place, dict):
            yield where, place
        return
    name, rest = names[0].removesuffix("[]"), names[1:]
    found = place.get(name) if isinstance(place, dict) else None
    if not names[0].endswith("[]"):
        yield from sections(found, rest, (*where, name))
    elif isinstance(found, list):
        for number, one in enumerate(found):
            yield from sections(one, rest, (*where, name, str(number)))


def _read_one(section: dict[str, Any], path: Place, variables: Mapping[Place, str]) -> Iterator[str]:
    name = path[-1]
    given = [f"{name}{source}" for source in ("", *_SOURCES) if f"{name}{source}" in section]
    asked = [one for one in given if one != name]
    if not asked:
        return
    if len(given) > 1:
        yield f"{' and '.join(_shown((*path[:-1], one)) for one in given)}: two sources of one secret; remove one"
        for one in asked:
            del section[one]
        return
    value = section.pop(asked[0])
    is_file = asked[0].endswith("_file")
    called = variables.get((*path[:-1], asked[0])) or _shown((*path[:-1], asked[0]))
    # A placeholder, so that no second problem is reported. With problems, no process starts.
    section[name] = SecretText("?")
    try:
        values = value if is_file and isinstance(value, list) and name in _LISTS else [value]
        texts = [SecretText(source.current(), source) for source in (_source(one, called, is_file) for one in values)]
    except UnreadableSecret as error:
        del section[name]
        yield f"{called} = {shown_file(value) if is_file and isinstance(value, str) else HIDDEN}: {error}"
        return
    several = [one for text in texts for one in secrets_of(text)] if name in _LISTS else texts
    section[name] = several[0] if len(several) == 1 else several or texts[0]


def _source(value: Any, called: str, is_file: bool) -> KeptSecret:  # noqa: FBT001 - of two kinds
    if is_file:
        if not isinstance(value, str):
            raise UnreadableSecret("expected a file's name")
        return KeptSecret(lambda: read_secret_file(value), name=called, keep_seconds=FILE_KEEP_SECONDS)
    if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
        raise UnreadableSecret("expected a command: one text, or a list of program and arguments")
    try:
        words = words_of(value)
    except InvalidValue as error:
        raise UnreadableSecret(error.remedy) from None
    return KeptSecret(lambda: run_secret_command(words), name=called, keep_seconds=COMMAND_KEEP_SECONDS)


def _shown(path: Place) -> str:
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in path).lstrip(".")


def shown_file(value: str) -> str:
    """Returns a file name for people. Hides the name if it may be the secret, written there by mistake."""
    return shown_value(value) if "://" in value or value.startswith(("/", "./", "../")) else HIDDEN
