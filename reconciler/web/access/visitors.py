"""From a request to its visitor."""

from __future__ import annotations

from http import HTTPStatus

from reconciler.web.access.roles import Visitor, WebRole
from reconciler.web.exchange import WebRefusal, WebRequest

#: Without users, everybody on this machine looks, and nobody acts: what is done has the name of who did it.
LOCAL_VISITOR = Visitor(name="", role=WebRole.VIEWER)


def visitor_of(_request: WebRequest) -> Visitor:
    """Who sent a request."""
    return LOCAL_VISITOR


def require_role(request: WebRequest, role: WebRole) -> None:
    """Raises WebRefusal: the visitor may not do this."""
    if request.visitor.role < role:
        needed = role.name.lower()
        raise WebRefusal(HTTPStatus.FORBIDDEN, f"this needs the role {needed}", kind="role-needed", role=needed)
