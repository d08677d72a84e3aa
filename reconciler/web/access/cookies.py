"""Cookies that admit a visitor: the id of a session, and the mark of a known device.

A *known device* is a browser in which a user has logged in before. The server stores nothing about the device. The
device's cookie is signed with the hash of the user's password, which has 128 random bits. A new password therefore
makes the device unknown.
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
    """A cookie whose name differs between deployments. A browser keeps one jar for all ports of a host, even for
    staging and production together."""

    name: str
    path: str
    is_secure: bool
    #: Lifetime of the cookie. None: the cookie lives until the browser is closed.
    age_seconds: int | None = None

    def value_in(self, request: WebRequest) -> str:
        """Returns the cookie's value. Returns an empty text if the request lacks the cookie."""
        return request.cookies.get(self.name, "")

    def header(self, value: str) -> str:
        """Makes the value of Set-Cookie. An empty value makes the browser forget the cookie."""
        parts = [f"{self.name}={value}", f"Path={self.path}", "HttpOnly", "SameSite=Lax"]
        parts += ["Secure"] if self.is_secure else []
        age_seconds = self.age_seconds if value else 0
        parts += [] if age_seconds is None else [f"Max-Age={age_seconds}"]
        return "; ".join(parts)


def session_cookie(environment: str, *, prefix: str, is_secure: bool) -> OwnCookie:
    """Makes the cookie of a session. If the rules of RFC 6265bis (4.1.3) allow a prefix, its name has one, and other
    hosts cannot set it."""
    guard = "" if not is_secure else "__Secure-" if prefix else "__Host-"
    return OwnCookie(name=f"{guard}reconciler-{environment}", path=prefix or "/", is_secure=is_secure)


def device_cookie(session: OwnCookie) -> OwnCookie:
    """Makes the cookie of a device that belongs to the cookie of a session."""
    return replace(session, name=f"{session.name}-device", age_seconds=DEVICE_SECONDS_MAX)


def new_device(user: WebUser) -> str:
    """Makes the cookie's value for a device in which the user has just logged in."""
    number = secrets.token_urlsafe(16)
    return f"{number}.{_signature(user, number)}"


def is_device_of(user: WebUser, value: str) -> bool:
    """Returns True if the user has logged in with this device and has kept the same password since."""
    number, _, signature = value.partition(".")
    return hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), _signature(user, number).encode())


def _signature(user: WebUser, number: str) -> str:
    text = f"device:{user.name}:{number}"
    return hmac.new(user.password_hash.encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
