"""Logins of users. A login compares name and password with the file of users, slows guesses down, and is logged."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from http import HTTPStatus

from reconciler.web.access.addresses import TrustedProxies
from reconciler.web.access.cookies import OwnCookie, device_cookie, is_device_of, new_device
from reconciler.web.access.passwords import PasswordComparison, TooManyComparisons
from reconciler.web.access.sessions import Sessions
from reconciler.web.access.throttle import OF_A_USER, OF_AN_ADDRESS, OF_ONE_PLACE, LoginThrottle
from reconciler.web.access.tokens import digest_of
from reconciler.web.access.users_file import UsersFile
from reconciler.web.exchange import WebRefusal, WebRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    """Logins of users. The threads of all requests share this object."""

    users: UsersFile
    sessions: Sessions
    cookie: OwnCookie
    proxies: TrustedProxies
    throttle: LoginThrottle
    comparison: PasswordComparison

    def log_in(self, request: WebRequest, name: str, password: str) -> tuple[str, str]:
        """Begins a session and ends the former session. The device becomes known. Returns the values of Set-Cookie.

        Raises WebRefusal if name or password is wrong, without saying which. Raises WebRefusal after too many attempts.
        """
        user = self.users.current().users.get(name)
        address = self.proxies.client_of(request)
        device = device_cookie(self.cookie)
        shown = device.value_in(request)
        is_known = user is not None and is_device_of(user, shown)
        # A person may type the password in place of the name, so the log gets only names of users.
        told = {"user": user.name if user else "(unknown)", "address": address, "request_id": request.request_id}
        told["device"] = "known" if is_known else "unknown"
        user_text = f"user {name[:100]}"
        counted = {f"{user_text} from {address}": OF_ONE_PLACE, f"from {address}": OF_AN_ADDRESS, user_text: OF_A_USER}
        if is_known:  # so guesses from other devices never lock out this one
            counted = {f"device {digest_of(shown)}": OF_ONE_PLACE}
        wait_seconds = self.throttle.attempt(counted)
        if wait_seconds > 0:
            logger.warning("web_login_refused", extra=told | {"why": "too many attempts"})
            raise _too_many(wait_seconds)
        try:
            is_right = self.comparison.is_right(user.password_hash if user else None, password, is_known=is_known)
        except TooManyComparisons:
            self.throttle.take_back(counted)
            logger.warning("web_login_refused", extra=told | {"why": "too many at once"})
            raise _too_many(1.0) from None
        if user is None or not is_right:
            logger.warning("web_login_refused", extra=told | {"why": "wrong name or password"})
            raise WebRefusal(HTTPStatus.FORBIDDEN, "name or password is wrong", kind="login-refused")
        self.throttle.take_back(counted)
        self.sessions.end(self.cookie.value_in(request))
        logger.info("web_login", extra=told | {"role": user.role.word})
        return device.header(new_device(user)), self.cookie.header(self.sessions.begin(user))

    def log_out(self, request: WebRequest) -> str:
        """Ends the session, if there is one. Returns the value of Set-Cookie."""
        self.sessions.end(self.cookie.value_in(request))
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
