"""Roles, and the visitor who has one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who sent a request."""

    #: As it is written on record; empty: nobody said who they are.
    name: str
    role: WebRole


ANYBODY = Visitor(name="", role=WebRole.ANYBODY)
