"""What a page offers its visitor to do. Disabled buttons say why."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from reconciler.web.exchange import WebRequest
from reconciler.web.roles import ROLES_BY_NAME, Visitor
from reconciler.web.services import WebServices

#: A repair of more messages needs their typed number.
CONFIRMED_ABOVE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a page may offer one visitor."""

    visitor: Visitor
    #: True: nobody is offered anything.
    is_read_only: bool
    bulk_admin_above: int
    confirmed_above: int = CONFIRMED_ABOVE

    def barrier(self, role: str) -> str:
        """Returns why this visitor may not do what needs a role: `name` or the role's name. Empty: they may."""
        if not self.visitor.name:
            return "name"
        return role if self.visitor.role < ROLES_BY_NAME[role] else ""

    def new_key(self) -> str:
        """Makes the idempotency key of one form."""
        return secrets.token_hex(16)


def offer_to(services: WebServices, request: WebRequest) -> Offer:
    """Returns the offer for a request's visitor."""
    web = services.settings.web
    return Offer(visitor=request.visitor, is_read_only=web.read_only, bulk_admin_above=web.bulk_admin_above)
