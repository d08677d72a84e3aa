"""Who asks, and whether they may: asked once for every request, before its handler."""

from __future__ import annotations

from http import HTTPStatus

from reconciler.settings.schema import WebSettings
from reconciler.web.access.person import Person, Proof, WebRole
from reconciler.web.exchange import WebRefusal, WebRequest


class Gate:
    """Shared by threads."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings

    def person_of(self, request: WebRequest) -> Person | None:
        """Who asks; None: nobody that is known."""
        del request
        return Person(name="somebody", role=WebRole(self._settings.local_role), proof=Proof.LOOPBACK)

    def admit(self, request: WebRequest, *, needed: WebRole, changes: bool) -> None:
        """Raises WebRefusal: 401 for nobody, 403 for a role that is too small, or a change that is not allowed."""
        if request.person is None:
            raise WebRefusal(HTTPStatus.UNAUTHORIZED, "log in, or give a token")
        if not request.person.role.covers(needed):
            raise WebRefusal(
                HTTPStatus.FORBIDDEN, f"needs the role {needed}; {request.person.name} is {request.person.role}"
            )
        if changes and self._settings.read_only:
            raise WebRefusal(HTTPStatus.FORBIDDEN, "web.read_only = true: this page changes nothing", kind="read-only")
