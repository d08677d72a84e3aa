"""Finds the visitor of a request by the credential in it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from http import HTTPStatus

from reconciler.clock import Clock
from reconciler.contract.tables import PROXY_USER_PREFIX
from reconciler.web.access.addresses import TrustedProxies
from reconciler.web.access.cookies import OwnCookie
from reconciler.web.access.forgery import ForgeryGuard
from reconciler.web.access.sessions import Sessions
from reconciler.web.access.tokens import digest_of
from reconciler.web.access.users import WebUsers, is_name
from reconciler.web.access.users_file import UsersFile
from reconciler.web.exchange import WebRefusal, WebRequest
from reconciler.web.roles import ANYBODY, ROLES_BY_NAME, Credential, Visitor, WebRole

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeaders:
    """Headers in which a trusted proxy names the visitor."""

    user: str
    #: Header with the visitor's role. None: every visitor has the role `same_role`.
    role: str | None
    same_role: WebRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitors:
    """Finds the visitor of a request. The first of these credentials counts: proxy, bearer token, session.

    If there is neither a file of users nor a proxy's header, every client is a viewer. Then only this machine reaches
    the server. Nobody can act, because acts are recorded with a name.
    """

    clock: Clock
    users: UsersFile | None
    sessions: Sessions
    cookie: OwnCookie
    guard: ForgeryGuard
    proxies: TrustedProxies
    headers: ProxyHeaders | None

    def visitor_of(self, request: WebRequest) -> Visitor:
        """Finds the visitor. Raises WebRefusal for an unusable credential. Raises DependencyAway if the users cannot be
        read."""
        if self.users is None and self.headers is None:
            return self._known("", WebRole.VIEWER, Credential.LOCAL)
        if self.headers is not None and request.headers.get(self.headers.user) and self.proxies.sent(request):
            return self._of_proxy(request, self.headers)
        if self.users is None:
            return ANYBODY
        token = _bearer_token(request)
        session_id = self.cookie.value_in(request)
        if token is not None:
            if session_id:
                raise WebRefusal(
                    HTTPStatus.BAD_REQUEST, "a bearer token and a cookie: send one of them", kind="two-credentials"
                )
            return self._of_token(token, self.users.current())
        return self._of_session(session_id, self.users.current()) if session_id else ANYBODY

    def _of_proxy(self, request: WebRequest, headers: ProxyHeaders) -> Visitor:
        name = request.headers[headers.user]
        role = headers.same_role
        if headers.role is not None:
            role = ROLES_BY_NAME.get(request.headers.get(headers.role, ""), WebRole.ANYBODY)
        if not is_name(name):
            raise WebRefusal(
                HTTPStatus.BAD_REQUEST,
                f"the proxy's header {headers.user} holds no name of 1 to 100 of the characters A-Z a-z 0-9 . _ @ + -",
                kind="no-name",
            )
        # A user or token may have the same name as the proxy's visitor, but is somebody else.
        return self._known(f"{PROXY_USER_PREFIX if self.users else ''}{name}", role, Credential.PROXY)

    def _of_token(self, token: str, users: WebUsers) -> Visitor:
        digest = digest_of(token)
        found = next((one for one in users.tokens.values() if one.digest == digest), None)
        if found is None or found.expires_at_ms <= self.clock.now_ms():
            raise _wrong_token("is not known" if found is None else "has expired")
        return self._known(found.name, found.role, Credential.TOKEN)

    def _of_session(self, session_id: str, users: WebUsers) -> Visitor:
        at_login = self.sessions.user_of(session_id)
        if at_login is None:
            return ANYBODY
        if users.users.get(at_login.name) != at_login:
            self.sessions.end(session_id)
            logger.warning("web_session_ended", extra={"user": at_login.name, "why": "removed, or changed since"})
            return ANYBODY
        return self._known(at_login.name, at_login.role, Credential.SESSION, subject=session_id)

    def _known(self, name: str, role: WebRole, credential: Credential, *, subject: str = "") -> Visitor:
        token = self.guard.token_for(credential, subject or name) if credential.is_ambient else ""
        return Visitor(name=name, role=role, credential=credential, csrf_token=token)


def require_role(request: WebRequest, role: WebRole) -> None:
    """Raises WebRefusal if the visitor's role is lower than this role."""
    if request.visitor.role < role:
        needed = role.word
        raise WebRefusal(HTTPStatus.FORBIDDEN, f"this needs the role {needed}", kind="role-needed", role=needed)


def _wrong_token(why: str) -> WebRefusal:
    """Makes the refusal of a token (RFC 6750, 3.1)."""
    challenge = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return WebRefusal(HTTPStatus.UNAUTHORIZED, f"the bearer token {why}", kind="wrong-token", headers=challenge)


def _bearer_token(request: WebRequest) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
