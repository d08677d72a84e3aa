"""A login: name and password against the file of users, slowed down, and told to the log."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from http import HTTPStatus

from reconciler.web.access.addresses import TrustedProxies
from reconciler.web.access.cookies import SessionCookie
from reconciler.web.access.passwords import PasswordComparison, TooManyComparisons
from reconciler.web.access.sessions import Sessions
from reconciler.web.access.throttle import LoginThrottle
from reconciler.web.access.users_file import UsersFile
from reconciler.web.exchange import WebRefusal, WebRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    """Shared by the threads of all requests."""

    users: UsersFile
    sessions: Sessions
    cookie: SessionCookie
    proxies: TrustedProxies
    throttle: LoginThrottle
    comparison: PasswordComparison

    def log_in(self, request: WebRequest, name: str, password: str) -> str:
        """A new session; gives the value of Set-Cookie. The session of before ends.

        Raises WebRefusal: name or password is wrong, which of them is not told; or others have tried too often.
        """
        user = self.users.current().users.get(name)
        address = self.proxies.client_of(request)
        # What is typed as a name may be a password: only names of users are written down.
        told = {"user": user.name if user else "(unknown)", "address": address, "request_id": request.request_id}
        counted = (f"user {name[:100]}", f"address {address}")
        wait_seconds = self.throttle.attempt(counted)
        if wait_seconds > 0:
            logger.warning("web_login_refused", extra=told | {"why": "too many attempts"})
            raise _too_many(wait_seconds)
        try:
            is_right = self.comparison.is_right(user.password_hash if user else None, password)
        except TooManyComparisons:
            self.throttle.take_back(counted)
            logger.warning("web_login_refused", extra=told | {"why": "too many at once"})
            raise _too_many(1.0) from None
        if user is None or not is_right:
            logger.warning("web_login_refused", extra=told | {"why": "wrong name or password"})
            raise WebRefusal(HTTPStatus.FORBIDDEN, "name or password is wrong", kind="login-refused")
        self.throttle.take_back(counted)
        self.sessions.end(self.cookie.session_id(request))
        logger.info("web_login", extra=told | {"role": user.role.word})
        return self.cookie.header(self.sessions.begin(user))

    def log_out(self, request: WebRequest) -> str:
        """Ends the session, where there is one; gives the value of Set-Cookie."""
        self.sessions.end(self.cookie.session_id(request))
        if request.visitor.name:
            logger.info("web_logout", extra={"user": request.visitor.name, "request_id": request.request_id})
        return self.cookie.header("")


def _too_many(wait_seconds: float) -> WebRefusal:
    seconds = math.ceil(wait_seconds)
    return WebRefusal(
        HTTPStatus.TOO_MANY_REQUESTS,
        f"too many attempts: try again in {seconds} seconds",
        kind="too-many-logins",
        headers={"Retry-After": str(seconds)},
    )
