"""One POST to a receiver of notices: bounded in time and size, redirects refused, the address shown nowhere.

Standard library only. HTTPS_PROXY, HTTP_PROXY and NO_PROXY are honoured, and SSL_CERT_FILE for private authorities.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import (  # type: ignore[attr-defined]  # typeshed leaves the second one out
    getproxies_environment,
    proxy_bypass_environment,
)

from reconciler.channels.deadline import Deadline, ReceivedBytes
from reconciler.clock import Clock, SystemClock
from reconciler.errors import ChannelAway, ChannelRefused

#: For the connection, and for each wait for bytes.
STEP_SECONDS = 5.0
#: For all of it, from the connection on. The resolver of names keeps its own time.
TOTAL_SECONDS = 10.0
#: More of an answer is not read.
ANSWER_BYTES_MAX = 64 * 1024
#: A receiver that asks to wait for longer is asked again after this.
RETRY_AFTER_SECONDS_MAX = 3_600.0
#: Answers that another try may cure.
_PASSING = frozenset({408, 425, 429})
_REMEDIES = {
    401: "correct its secret or token",
    403: "correct its secret or token, or let this host in",
    404: "correct its url",
    410: "correct its url",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What a receiver answered, whatever its status."""

    status: int
    body: bytes
    #: How long it asks to wait; None: it does not say.
    retry_after_seconds: float | None = None

    @property
    def may_pass(self) -> bool:
        """Another try may cure it."""
        return self.status >= 500 or self.status in _PASSING


class HttpPost:
    """Posts to one receiver. Shared by threads; each POST has a connection of its own."""

    def __init__(
        self,
        *,
        name: str,
        step_seconds: float = STEP_SECONDS,
        total_seconds: float = TOTAL_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """`name`: what errors call the receiver. Proxies are read from the environment here, once."""
        self._name = name
        self._proxies = getproxies_environment()
        self._step_seconds = step_seconds
        self._total_seconds = total_seconds
        self._clock = clock or SystemClock()

    def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """The answer of a receiver that has taken it (2xx). Raises ChannelAway and ChannelRefused."""
        answer = self.exchange(url, body, headers)
        self.require_taken(answer)
        return answer

    def ping(self, url: str) -> None:
        """One GET, which every dead man's switch takes. Raises ChannelAway and ChannelRefused."""
        self.require_taken(self.exchange(url, None, {"Cache-Control": "no-store"}, method="GET"))

    def exchange(self, url: str, body: bytes | None, headers: Mapping[str, str], *, method: str = "POST") -> HttpAnswer:
        """The answer, whatever its status, unless it is a redirect.

        Raises ChannelAway without an answer, and ChannelRefused for a redirect, a certificate that is not trusted, and
        an address that is no http(s) URL.
        """
        parts = self._parts(url)
        deadline = Deadline(self._clock, self._total_seconds, step_seconds=self._step_seconds)
        try:
            connection = self._connection(parts)
            try:
                return self._answer(connection, parts, deadline, (method, body, headers))
            finally:
                connection.close()
        except ssl.SSLCertVerificationError as error:
            remedy = "give its authority in SSL_CERT_FILE, or correct its url"
            raise ChannelRefused(
                f"{self._name}: its certificate is not trusted: {error.verify_message}", remedy=remedy
            ) from error
        except TimeoutError as error:
            raise ChannelAway(f"{self._name}: no answer in time") from error
        except (http.client.InvalidURL, UnicodeError) as error:
            raise ChannelRefused(f"{self._name}: its url cannot be asked for", remedy="correct its url") from error
        except (OSError, http.client.HTTPException) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            raise ChannelAway(f"{self._name}: no answer: {why}") from error

    def require_taken(self, answer: HttpAnswer) -> None:
        """Raises ChannelAway or ChannelRefused unless the status is 2xx."""
        status = answer.status
        if 200 <= status < 300:
            return
        said = f"{self._name}: answers {status}"
        if answer.may_pass:
            raise ChannelAway(said, retry_after_seconds=answer.retry_after_seconds)
        raise ChannelRefused(said, remedy=_REMEDIES.get(status, "look at the receiver's log"))

    def _parts(self, url: str) -> SplitResult:
        with suppress(ValueError):
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
                return parts
        raise ChannelRefused(f"{self._name}: its url is no http:// or https:// URL", remedy="correct its url")

    def _proxy(self, parts: SplitResult) -> SplitResult | None:
        """Of this address; None: it is asked directly."""
        proxy = self._proxies.get(parts.scheme)
        if not proxy or proxy_bypass_environment(str(parts.hostname), self._proxies):
            return None
        return urlsplit(proxy if "://" in proxy else f"http://{proxy}")

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        host, proxy = str(parts.hostname), self._proxy(parts)
        where = (host, parts.port) if proxy is None else (str(proxy.hostname), proxy.port)
        if parts.scheme == "http":
            return http.client.HTTPConnection(*where, timeout=self._step_seconds)
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(*where, timeout=self._step_seconds, context=context)
        if proxy is not None:
            connection.set_tunnel(host, parts.port or 443, headers=_proxy_login(proxy))
        return connection

    def _answer(
        self,
        connection: http.client.HTTPConnection,
        parts: SplitResult,
        deadline: Deadline,
        request: tuple[str, bytes | None, Mapping[str, str]],
    ) -> HttpAnswer:
        method, body, headers = request
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {"Connection": "close", "User-Agent": "checkback-reconciler", **headers}
        proxy = self._proxy(parts)
        if parts.scheme == "http" and proxy is not None:
            target = f"http://{parts.netloc.rpartition('@')[2]}{target}"
            sent |= _proxy_login(proxy)
        connection.connect()
        opened = connection.sock
        try:
            connection.sock = cast("socket.socket", _TimedSocket(opened, deadline))
            connection.request(method, target, body, sent)
            response = connection.getresponse()
            if 300 <= response.status < 400:
                remedy = "write the address that it leads to as its url"
                raise ChannelRefused(f"{self._name}: answers {response.status}, a redirect", remedy=remedy)
            return HttpAnswer(
                status=response.status,
                body=response.read(ANSWER_BYTES_MAX),
                retry_after_seconds=_retry_after_seconds(response.headers),
            )
        finally:
            opened.close()


def _proxy_login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}


def _retry_after_seconds(headers: http.client.HTTPMessage) -> float | None:
    """RFC 9110, 10.2.3: seconds, or a date, which is compared with the receiver's own."""
    text = (headers.get("Retry-After") or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), RETRY_AFTER_SECONDS_MAX)
    asked, now = _moment(text), _moment(headers.get("Date") or "")
    if asked is None or now is None:
        return None
    with suppress(TypeError):  # one of them names no zone
        return min(max(0.0, (asked - now).total_seconds()), RETRY_AFTER_SECONDS_MAX)
    return None


def _moment(text: str) -> datetime | None:
    with suppress(ValueError, TypeError, OverflowError):
        return parsedate_to_datetime(text)
    return None


class _TimedSocket:
    """What http.client asks of a socket, under the deadline of the POST."""

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._opened = opened
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        """Raises TimeoutError."""
        self._opened.settimeout(self._deadline.next_wait_seconds())
        self._opened.sendall(data)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        """What the response is read from."""
        return io.BufferedReader(ReceivedBytes(self._opened, self._deadline))

    def close(self) -> None:
        """Its owner closes the socket: the response reads on after http.client has let go of it."""
