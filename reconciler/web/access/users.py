"""Users and tokens, and the text of the file that keeps them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from reconciler.clock import utc_text
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.web.roles import ROLES_BY_NAME, WebRole

#: Pattern of names under which acts are recorded.
NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}"
ENTRIES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WebUser:
    """A person who can log in."""

    name: str
    role: WebRole
    password_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebToken:
    """The token that proves a program's name."""

    name: str
    role: WebRole
    #: SHA-256 of the token, hexadecimal.
    digest: str = field(repr=False)
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class WebUsers:
    """Users and tokens by name. A name belongs to a user or to a token, not to both."""

    users: Mapping[str, WebUser] = field(default_factory=lambda: MappingProxyType({}))
    tokens: Mapping[str, WebToken] = field(default_factory=lambda: MappingProxyType({}))

    def with_entry(self, entry: WebUser | WebToken) -> WebUsers:
        """Adds the entry, or replaces the entry with the same name and kind. Raises InvalidValue for an entry that
        cannot be added."""
        own, other = (self.users, self.tokens) if isinstance(entry, WebUser) else (self.tokens, self.users)
        if not is_name(entry.name):
            raise InvalidValue("name", entry.name, "1 to 100 of the characters A-Z a-z 0-9 . _ @ + -")
        if entry.name in other:
            raise InvalidValue("name", entry.name, "a user and a token must not have one name; choose another")
        if len(own) >= ENTRIES_MAX and entry.name not in own:
            raise InvalidValue("name", entry.name, f"there are {ENTRIES_MAX} already; remove one")
        if isinstance(entry, WebUser):
            return WebUsers({**self.users, entry.name: entry}, self.tokens)
        return WebUsers(self.users, {**self.tokens, entry.name: entry})

    def without_user(self, name: str) -> WebUsers:
        """Returns the users and tokens without this user. Raises InvalidValue for an unknown name."""
        if name not in self.users:
            raise InvalidValue("name", name, "no user has this name")
        return WebUsers({one: user for one, user in self.users.items() if one != name}, self.tokens)

    def without_token(self, name: str) -> WebUsers:
        """Returns the users and tokens without this token. Raises InvalidValue for an unknown name."""
        if name not in self.tokens:
            raise InvalidValue("name", name, "no token has this name")
        return WebUsers(self.users, {one: token for one, token in self.tokens.items() if one != name})


def is_name(text: str) -> bool:
    """Returns True if a user or a token may have this name."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def read_users(content: bytes) -> WebUsers:
    """Reads users and tokens from a file's content. Raises ConfigurationError, whose text shows no hash."""
    try:
        document = _Document.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"][:1])
        raise ConfigurationError(f"no file of users: {where}{': ' if where else ''}{first['msg']}") from None
    if document.users.keys() & document.tokens.keys():
        raise ConfigurationError("no file of users: a user and a token have one name")
    return WebUsers(
        {
            name: WebUser(name=name, role=ROLES_BY_NAME[entry.role], password_hash=entry.password_hash)
            for name, entry in document.users.items()
        },
        {
            name: WebToken(
                name=name,
                role=ROLES_BY_NAME[entry.role],
                digest=entry.sha256,
                expires_at_ms=round(entry.expires.timestamp() * 1000),
            )
            for name, entry in document.tokens.items()
        },
    )


def written_users(users: WebUsers) -> bytes:
    """Writes the content of the file: JSON, one entry per name."""
    document = {
        "schema_version": 1,
        "users": {
            name: {"role": user.role.word, "password_hash": user.password_hash}
            for name, user in sorted(users.users.items())
        },
        "tokens": {
            name: {
                "role": token.role.word,
                "sha256": token.digest,
                "expires": utc_text(token.expires_at_ms),
            }
            for name, token in sorted(users.tokens.items())
        },
    }
    return (json.dumps(document, indent=2) + "\n").encode("ascii")


_Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
_Role = Literal["viewer", "operator", "admin"]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _UserEntry(_Entry):
    role: _Role
    password_hash: Annotated[str, Field(max_length=500, pattern=r"^\$argon2id\$[A-Za-z0-9+/=,$]+$")]


class _TokenEntry(_Entry):
    role: _Role
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    expires: AwareDatetime


class _Document(_Entry):
    schema_version: Literal[1]
    users: Annotated[dict[_Name, _UserEntry], Field(max_length=ENTRIES_MAX)] = {}
    tokens: Annotated[dict[_Name, _TokenEntry], Field(max_length=ENTRIES_MAX)] = {}
