"""Guard against requests that a page of another site makes a browser send (CSRF).

A request needs two proofs. The browser sends the first one: Sec-Fetch-Site (Fetch Metadata) or Origin (RFC 6454). The
second one is a token that only this visitor's pages have: an HMAC-SHA256 over the visitor with a secret of this
process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import suppress
from http import HTTPStatus

from reconciler.web.exchange import WebRefusal, WebRequest, last_of
from reconciler.web.roles import Credential

CSRF_FIELD = "csrf_token"
CSRF_HEADER = "x-csrf-token"


class ForgeryGuard:
    """Makes tokens and compares them. Its only state is the secret, so a restart makes every token invalid."""

    def __init__(self, *, scheme: str) -> None:
        """`scheme`: http or https, as in the requests of browsers."""
        self._scheme = scheme
        self._secret = secrets.token_bytes(32)

    def token_for(self, credential: Credential, subject: str) -> str:
        """Makes the token for a visitor's pages. `subject`: the session's id, or the visitor's name."""
        text = f"{credential.name}:{subject}"
        return hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def require_own_page(self, request: WebRequest) -> None:
        """Raises WebRefusal if the request comes from a page of another site, or from a page that was made for another
        visitor."""
        if request.visitor.credential is Credential.TOKEN:
            return
        if not self._is_from_own_page(request):
            raise WebRefusal(
                HTTPStatus.FORBIDDEN,
                "this was not sent by a page of this server; if you did press a button here: the browser must send "
                "Origin or Sec-Fetch-Site, and a proxy must keep Host",
                kind="forged",
            )
        if request.visitor.credential.is_ambient and not hmac.compare_digest(
            _sent_token(request).encode("utf-8", "surrogatepass"), request.visitor.csrf_token.encode()
        ):
            raise WebRefusal(
                HTTPStatus.FORBIDDEN,
                "the page is older than your login, or than this server's start: load it again, and press again",
                kind="stale-page",
            )

    def _is_from_own_page(self, request: WebRequest) -> bool:
        site = request.headers.get("sec-fetch-site")
        if site is not None:
            return site == "same-origin"
        own = f"{self._scheme}://{request.headers.get('host', '')}"
        return request.headers.get("origin", "").lower() == own.lower()


def _sent_token(request: WebRequest) -> str:
    header = request.headers.get(CSRF_HEADER)
    if header is not None:
        return header
    with suppress(WebRefusal):
        return last_of(request.form(), CSRF_FIELD)
    return ""
