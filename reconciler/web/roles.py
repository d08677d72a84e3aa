"""Roles, and the visitor who has one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto


class WebRole(IntEnum):
    """A higher role may what a lower one may."""

    #: Nobody in particular: health for a load balancer, the login page.
    ANYBODY = 0
    #: Looks.
    VIEWER = 1
    #: Repairs, holds, resumes, dismisses, and opens a body with a reason.
    OPERATOR = 2
    #: Rebuilds, closes the breaker, and repairs many at once.
    ADMIN = 3

    @property
    def word(self) -> str:
        """As people, files and documents write it."""
        return self.name.lower()


#: What a user or a token can be given.
ROLES_BY_NAME = {role.word: role for role in WebRole if role is not WebRole.ANYBODY}


class Credential(Enum):
    """What says who sent a request."""

    NONE = auto()
    #: The connection itself: it comes from this machine.
    LOCAL = auto()
    #: The cookie that a login left.
    SESSION = auto()
    #: The header that a proxy in front adds.
    PROXY = auto()
    #: A bearer token that a program wrote into the request.
    TOKEN = auto()

    @property
    def is_ambient(self) -> bool:
        """A browser sends it along with what a page of another site makes it ask."""
        return self in {Credential.LOCAL, Credential.SESSION, Credential.PROXY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who sent a request."""

    #: As it is written on record; empty: nobody said who they are.
    name: str
    role: WebRole
    credential: Credential = Credential.NONE
    #: What a form of a page for this visitor sends back in the field `csrf_token`.
    csrf_token: str = field(default="", repr=False)

    @property
    def has_session(self) -> bool:
        """A logout would end something."""
        return self.credential is Credential.SESSION


ANYBODY = Visitor(name="", role=WebRole.ANYBODY)
