"""Cookies that let a visitor in: a session's id, and what makes a device known.

A *known device* is a browser in which a user has logged in before. Nothing is kept of it here: its cookie is signed
with the hash of the user's password, which holds 128 random bits, so that another password makes the device unknown.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace

from reconciler.web.access.users import WebUser
from reconciler.web.exchange import WebRequest

DEVICE_SECONDS_MAX = 180 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCookie:
    """One a deployment: a browser has one jar for all ports of a host, staging and production included."""

    name: str
    path: str
    is_secure: bool
    #: None: until the browser is closed.
    age_seconds: int | None = None

    def value_in(self, request: WebRequest) -> str:
        """Empty: there is none."""
        return request.cookies.get(self.name, "")

    def header(self, value: str) -> str:
        """The value of Set-Cookie; an empty one: the browser forgets it."""
        parts = [f"{self.name}={value}", f"Path={self.path}", "HttpOnly", "SameSite=Lax"]
        parts += ["Secure"] if self.is_secure else []
        age_seconds = self.age_seconds if value else 0
        parts += [] if age_seconds is None else [f"Max-Age={age_seconds}"]
        return "; ".join(parts)


def session_cookie(environment: str, *, prefix: str, is_secure: bool) -> OwnCookie:
    """With the prefix of RFC 6265bis (4.1.3) that keeps other hosts from setting it, where the rules for it are met."""
    guard = "" if not is_secure else "__Secure-" if prefix else "__Host-"
    return OwnCookie(name=f"{guard}reconciler-{environment}", path=prefix or "/", is_secure=is_secure)


def device_cookie(session: OwnCookie) -> OwnCookie:
    """Beside that of a session."""
    return replace(session, name=f"{session.name}-device", age_seconds=DEVICE_SECONDS_MAX)


def new_device(user: WebUser) -> str:
    """The value of the cookie of a device in which this user has just logged in."""
    number = secrets.token_urlsafe(16)
    return f"{number}.{_signature(user, number)}"


def is_device_of(user: WebUser, value: str) -> bool:
    """Whether the user has logged in with this device, and the password is still the one of then."""
    number, _, signature = value.partition(".")
    return hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), _signature(user, number).encode())


def _signature(user: WebUser, number: str) -> str:
    text = f"device:{user.name}:{number}"
    return hmac.new(user.password_hash.encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
