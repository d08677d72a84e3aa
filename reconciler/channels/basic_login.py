"""User and password of a URL for HTTP (RFC 7617)."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import unquote


def basic_login(user: str | None, password: str | None) -> str | None:
    """Makes the value of Authorization or Proxy-Authorization, in UTF-8. `user` and `password` are percent-encoded.
    None: there is no login."""
    if not user and not password:
        return None
    login = f"{unquote(user or '')}:{unquote(password or '')}"
    return f"Basic {b64encode(login.encode()).decode()}"
