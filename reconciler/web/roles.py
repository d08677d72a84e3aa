"""Roles, and the visitor with a role."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto


class WebRole(IntEnum):
    """Roles in ascending order. A higher role includes the rights of the lower ones."""

    #: Role of everybody. It reads the health of the process and the login page.
    ANYBODY = 0
    #: Role that reads everything and changes nothing.
    VIEWER = 1
    #: Role that repairs, holds, resumes and dismisses, and opens a body with a reason.
    OPERATOR = 2
    #: Role that also rebuilds, closes the breaker, and repairs many messages at once.
    ADMIN = 3

    @property
    def word(self) -> str:
        """The role as people, files and documents write it."""
        return self.name.lower()


#: Roles for users and tokens.
ROLES_BY_NAME = {role.word: role for role in WebRole if role is not WebRole.ANYBODY}


class Credential(Enum):
    """The proof of who sent a request."""

    NONE = auto()
    #: The connection itself, if it comes from this machine.
    LOCAL = auto()
    #: The cookie that a login has set.
    SESSION = auto()
    #: The header of a proxy in front.
    PROXY = auto()
    #: A bearer token in a program's request.
    TOKEN = auto()

    @property
    def is_ambient(self) -> bool:
        """True: a browser also sends it with a request that a page of another site causes."""
        return self in {Credential.LOCAL, Credential.SESSION, Credential.PROXY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """The sender of a request."""

    #: Name for the record. Empty: the visitor is unknown.
    name: str
    role: WebRole
    credential: Credential = Credential.NONE
    #: Value that a form for this visitor sends back in the field `csrf_token`.
    csrf_token: str = field(default="", repr=False)

    @property
    def has_session(self) -> bool:
        """True if the visitor has a session, which a logout ends."""
        return self.credential is Credential.SESSION


ANYBODY = Visitor(name="", role=WebRole.ANYBODY)
