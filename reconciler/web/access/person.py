"""Who asks, and what a role may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WebRole(StrEnum):
    """Each role may do what the ones before it may."""

    #: Looks.
    VIEWER = "viewer"
    #: Repairs, holds, resumes, dismisses; opens a body, with a reason.
    OPERATOR = "operator"
    #: Rebuilds, closes the breaker, repairs more messages at once than web.bulk_max.
    ADMIN = "admin"

    def covers(self, needed: WebRole) -> bool:
        """Whether this role may do what the other one may."""
        order = tuple(WebRole)
        return order.index(self) >= order.index(needed)


class Proof(StrEnum):
    """How a person proved who they are."""

    #: By nothing: the page is served on loopback only, and no users are configured.
    LOOPBACK = "loopback"
    SESSION = "session"
    TOKEN = "token"  # noqa: S105 - the name of a way, no token
    PROXY = "proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who asks."""

    name: str
    role: WebRole
    proof: Proof

    @property
    def signature(self) -> str:
        """The name that goes into the ledger with what this person does."""
        return f"operator {self.name} by web"
