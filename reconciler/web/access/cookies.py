"""The cookie that carries a session's id."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.web.exchange import WebRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCookie:
    """One cookie a deployment: a browser has one jar for all ports of a host, staging and production included."""

    name: str
    path: str
    is_secure: bool

    def session_id(self, request: WebRequest) -> str:
        """Empty: there is none."""
        return request.cookies.get(self.name, "")

    def header(self, session_id: str) -> str:
        """The value of Set-Cookie; an empty id: the browser forgets it."""
        parts = [f"{self.name}={session_id}", f"Path={self.path}", "HttpOnly", "SameSite=Lax"]
        parts += ["Secure"] if self.is_secure else []
        parts += [] if session_id else ["Max-Age=0"]
        return "; ".join(parts)


def session_cookie(environment: str, *, prefix: str, is_secure: bool) -> SessionCookie:
    """With the prefix of RFC 6265bis (4.1.3) that keeps other hosts from setting it, where the rules for it are met."""
    guard = "" if not is_secure else "__Secure-" if prefix else "__Host-"
    return SessionCookie(name=f"{guard}reconciler-{environment}", path=prefix or "/", is_secure=is_secure)
