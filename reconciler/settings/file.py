"""Reads the settings. A flag goes before a variable, a variable before the file, and the file before a default. Every
problem is reported at once.

A variable overrides one setting. The variable's name is ``RECONCILER_`` and the setting's name, with ``__`` for nesting
(``RECONCILER_REDIS__URL``). ``RECONCILER_REDIS__URL_FILE`` names a file that holds the value. The file of a secret is
read again later (secret_settings.py). ``RECONCILER_CONFIG`` names the settings file. An unknown setting or variable is
an error.

Reading has two steps. `read_document` parses file, variables and secrets into plain data, and knows no setting.
`load_settings` makes typed settings of the plain data. Only the second step loads pydantic.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.contract.named_files import require_file
from reconciler.contract.secret_sources import why_unreadable
from reconciler.contract.urls import HIDDEN, shown_url, shown_value
from reconciler.errors import ConfigurationError
from reconciler.settings.secret_settings import forget_other_sources, read_secrets, secret_at, shown_file

if TYPE_CHECKING:
    from pydantic import ValidationError

    from reconciler.settings.schema import Settings

ENVIRONMENT_PREFIX = "RECONCILER_"
#: Tables whose names are business topics. In these names, capitals matter, and _FILE at the end has no meaning.
NAMES_TOPICS = frozenset({("unique_key_topic", "topics"), ("repairs", "topics")})
#: Settings that are file names. Here, _FILE is a part of the setting's name.
NAMES_FILES = frozenset({"ca_file", "certificate_file", "key_file", "users_file"})
#: Variables that have our prefix but are not settings.
NOT_SETTINGS = frozenset({"RECONCILER_CONFIG", "RECONCILER_DB_URL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsDocument:
    """The settings as plain data, before they are validated."""

    #: The file's name, or "environment".
    origin: str
    #: Values as in TOML. A variable's value is a text, or a list or table that was parsed from the text.
    values: dict[str, Any] = field(repr=False)
    #: Path of a setting -> the variable that gives its value. All other settings come from the file.
    variables: Mapping[tuple[str, ...], str]
    #: Variables and secrets that cannot be used. Each of these problems is one line with the remedy.
    problems: list[str]
    #: Paths of unreadable secrets, which are left out of the values.
    unread: frozenset[tuple[str, ...]] = frozenset()


def read_document(path: Path | None, environ: Mapping[str, str]) -> SettingsDocument:
    """Reads the file if there is one, the variables, and the files that variables name.

    Raises ConfigurationError if the file cannot be read.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            require_file(path)
            values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except FileNotFoundError as error:
            raise ConfigurationError(f"{path}: no such file; name one with --config or RECONCILER_CONFIG") from error
        except UnicodeDecodeError as error:
            line = 1 + error.object[: error.start].count(b"\n")
            raise ConfigurationError(f"{path}: no UTF-8 text at line {line}: save the file as UTF-8") from error
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error}") from error
        except (ValueError, RecursionError) as error:  # thousands of digits or nested brackets raise this, too
            raise ConfigurationError(f"{path}: no valid TOML: {error}") from error
    variables, problems = _apply_environment(values, environ)
    unread = list(read_secrets(values, variables))
    return SettingsDocument(
        origin="environment" if path is None else str(path),
        values=values,
        variables=variables,
        problems=problems + [line for _, line in unread],
        unread=frozenset(secret for secret, _ in unread),
    )


def load_settings(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Reads the file if there is one, the environment and the flags. Raises ConfigurationError with all problems at
    once."""
    from pydantic import ValidationError  # slow to load

    from reconciler.settings.schema import Settings

    document = read_document(path, environ)
    _merge(document.values, overrides or {})
    problems = document.problems
    try:
        settings = Settings.model_validate(document.values)
    except ValidationError as error:
        problems += [
            f"{_variable(detail, document.variables)}{line}"
            for detail in error.errors()
            if not _follows_from(document.unread, detail["loc"])
            for line in describe(detail)
        ]
        problems += _contradictions_of_the_rest(document.values, error)
    if problems:
        listed = "\n".join(f"  {line}" for line in problems)
        raise ConfigurationError(f"{document.origin}: {len(problems)} problem(s) in the settings\n{listed}")
    return settings


def _contradictions_of_the_rest(document: Mapping[str, Any], first: ValidationError) -> list[str]:
    """Returns the contradictions between settings that are valid by themselves. So one run reports contradictions and
    invalid settings together."""
    from reconciler.settings.schema import Settings

    wrong = [detail["loc"] for detail in first.errors() if detail["loc"]]
    if not wrong:
        return []
    rest: Any = deepcopy(document)
    for location in wrong:
        place = rest
        for part in location[:-1]:
            place = place[part] if _holds(place, part) else {}
        if isinstance(place, dict):
            place.pop(location[-1], None)
    try:
        Settings.model_validate(rest)
    except type(first) as error:
        return [line for detail in error.errors() if not detail["loc"] for line in describe(detail)]
    return []


def _follows_from(unread: frozenset[tuple[str, ...]], location: Sequence[int | str]) -> bool:
    """Returns True if the problem may exist only because a secret at its place could not be read."""
    path = tuple(map(str, location))
    return any(path in (secret, secret[:-1]) for secret in unread)


def _holds(place: Any, part: int | str) -> bool:
    return part in place if isinstance(place, dict) else isinstance(place, list) and isinstance(part, int)


def _variable(detail: Any, variables: Mapping[tuple[str, ...], str]) -> str:
    """Returns the variable with the wrong value or unknown name, as the beginning of the line. Returns an empty text if
    the file has the value."""
    path = tuple(map(str, detail["loc"]))
    for end in range(len(path), 0, -1):
        if path[:end] in variables:
            return f"{variables[path[:end]]}: "
    below = [name for place, name in variables.items() if place[: len(path)] == path]
    return f"{', '.join(below)}: " if below and detail["type"] == "extra_forbidden" else ""


def describe(detail: Any) -> list[str]:
    """Returns one line per problem, which names the field, its value and the expected value."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_shown_name(part)}" for part in detail["loc"])
    location = "".join(parts).lstrip(".")
    if not location:
        return str(detail["msg"]).removeprefix("Value error, ").splitlines()
    message = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "missing":
        return [f"{location}: missing; config/reconciler.toml shows an example"]
    if detail["type"] == "extra_forbidden":
        return [f"{location}: unknown setting; remove it or correct its spelling"]
    return [f"{location} = {_shown(location, detail['input'])}: {message}"]


def _shown_name(name: str) -> str:
    """Returns a setting's name. Hides a URL that was written in the place of a name."""
    return HIDDEN if "://" in name or "@" in name else name


def _shown(location: str, value: object) -> str:
    """Returns a value as it may be shown. A value that could contain a secret is hidden, because these lines end up in
    logs."""
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    name = location.rpartition(".")[2].lower()
    # The parts of a database's URL that may be shown are known. A receiver's URL as a whole is a token.
    if "url" in name and not location.startswith("notifiers["):
        return shown_url(value)
    return HIDDEN if any(word in name for word in ("secret", "password", "token", "url")) else shown_value(value)


def _apply_environment(
    document: dict[str, Any], environ: Mapping[str, str]
) -> tuple[dict[tuple[str, ...], str], list[str]]:
    """Writes RECONCILER_ variables into the document. Returns the variable of each setting, and the problems.

    Unknown names pass here. The validation finds them.
    """
    variables: dict[tuple[str, ...], str] = {}
    problems: list[str] = []
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in NOT_SETTINGS:
            continue
        value = environ[name]
        parts = name.removeprefix(ENVIRONMENT_PREFIX).split("__")
        if not all(parts) or not name.isprintable():
            problems.append(f"{name!a}: names no setting; remove it or correct its spelling")
            continue
        path = [part.lower() for part in parts]
        if tuple(path[:-1]) in NAMES_TOPICS:
            path[-1] = parts[-1]
        elif secret_at(tuple(path)) is None and path[-1].endswith("_file") and path[-1] not in NAMES_FILES:
            path[-1] = path[-1].removesuffix("_file")
            try:
                require_file(value)
                value = Path(value).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                # The variable may contain the secret itself instead of a file name, and an OSError's text would repeat
                # it.
                otherwise = "no UTF-8 text, or no file's name; name a file that holds the value"
                why = why_unreadable(error) if isinstance(error, OSError) else otherwise
                problems.append(f"{name} = {shown_file(value)}: cannot be read: {why}")
                continue
        secret = secret_at(tuple(path))
        # A variable overrides the file, whatever source of the secret the file names. Two variables of one secret count
        # as two sources.
        replaced = secret[0][-1] if secret is not None and secret[0] not in variables else None
        problem = _set(document, path, _parsed(value), replaced)
        if problem:
            problems.append(f"{name}: {problem}")
        else:
            variables[tuple(path)] = name
            if secret is not None:
                variables.setdefault(secret[0], name)
    return variables, problems


def _parsed(value: str) -> Any:
    # Lists and tables are written as JSON or TOML. Any other value is a text that the validation converts.
    if not value.startswith(("[", "{")):
        return value
    for parse in (json.loads, lambda text: tomllib.loads(f"value = {text}")["value"]):
        with suppress(ValueError, RecursionError):
            return parse(value)
    return value


def _set(document: dict[str, Any], path: list[str], value: Any, replaced_secret: str | None) -> str | None:
    place: Any = document
    for part in path[:-1]:
        if isinstance(place, list):
            if part not in map(str, range(len(place))):
                return f"there is no entry {part} in the file; give the whole list as JSON"
            place = place[int(part)]
        else:
            place = place.setdefault(part, {})
        if not isinstance(place, (dict, list)):
            return f"{part} is no section"
    if isinstance(place, list):
        return "names a list; give the whole list as JSON"
    if replaced_secret is not None:
        forget_other_sources(place, replaced_secret)
    place[path[-1]] = value
    return None


def _merge(document: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    for name, value in overrides.items():
        if isinstance(value, Mapping):
            _merge(document.setdefault(name, {}), value)
        else:
            document[name] = value


def settings_path(flag: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the path of the settings file. The places are, in this order: --config, RECONCILER_CONFIG,
    $CONFIGURATION_DIRECTORY, /etc/reconciler. Returns None if no place has settings."""
    if flag is not None:
        return flag
    if environ.get("RECONCILER_CONFIG"):
        return Path(environ["RECONCILER_CONFIG"])
    for folder in (environ.get("CONFIGURATION_DIRECTORY"), "/etc/reconciler"):
        if not folder:
            continue
        path = Path(folder) / "reconciler.toml"
        try:
            is_there = stat.S_ISREG(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # an unreadable folder could contain the intended settings
            why = f"{path}: cannot be looked for: {error.strerror}; name a file with --config"
            raise ConfigurationError(why) from error
        if is_there:
            return path
    return None
