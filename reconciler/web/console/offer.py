"""The acts that a page offers to its visitor. A disabled button says why it is disabled."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from reconciler.web.exchange import WebRequest
from reconciler.web.roles import ROLES_BY_NAME, Visitor
from reconciler.web.services import WebServices

#: Largest number of messages that are repaired without confirmation. For more messages, a person types their number.
CONFIRMED_ABOVE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The acts that a page may offer to one visitor."""

    visitor: Visitor
    #: True: no act is offered to anybody.
    is_read_only: bool
    bulk_admin_above: int
    confirmed_above: int = CONFIRMED_ABOVE

    def barrier(self, role: str) -> str:
        """Returns what keeps the visitor from acts that need a role: `name` or the role's name. Empty: the visitor may
        do the acts."""
        if not self.visitor.name:
            return "name"
        return role if self.visitor.role < ROLES_BY_NAME[role] else ""

    def new_key(self) -> str:
        """Makes the idempotency key of one form."""
        return secrets.token_hex(16)


def offer_to(services: WebServices, request: WebRequest) -> Offer:
    """Makes the offer for the visitor of a request."""
    web = services.settings.web
    return Offer(visitor=request.visitor, is_read_only=web.read_only, bulk_admin_above=web.bulk_admin_above)
