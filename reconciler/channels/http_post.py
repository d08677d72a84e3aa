"""One POST to a receiver of notices. The POST is limited in time and size, and follows no redirect. Errors never show
the receiver's address.

Uses only the standard library. Reads HTTPS_PROXY, HTTP_PROXY and NO_PROXY, and SSL_CERT_FILE for private authorities.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies_environment

from reconciler.channels.basic_login import basic_login
from reconciler.channels.connections import certificate_problem, encrypt, open_connection
from reconciler.channels.deadline import Deadline, ReceivedBytes
from reconciler.channels.proxies import Proxy, proxy_of
from reconciler.clock import SystemClock
from reconciler.contract.urls import address_of
from reconciler.errors import ChannelAway, ChannelRefused

#: Limit for the connection to one address, the handshake of TLS, and each wait for bytes.
STEP_SECONDS = 5.0
#: Limit for the whole POST. Only the resolver of names has its own limit.
TOTAL_SECONDS = 10.0
#: Maximum number of bytes of an answer that are read.
ANSWER_BYTES_MAX = 64 * 1024
#: Limit of one response with its head, because a head of endless lines is no answer.
_RECEIVED_BYTES_MAX = 2 * ANSWER_BYTES_MAX
#: Status with which only a proxy answers (RFC 9110, 15.5.8).
PROXY_LOGIN_WANTED = 407
_PORTS = {"http": 80, "https": 443}
#: Longest pause before a receiver is asked again. A receiver's own wish may be longer.
RETRY_AFTER_SECONDS_MAX = 3_600.0
#: Statuses after which another try may succeed.
_PASSING = frozenset({408, 425, 429})
_REMEDIES = {
    401: "correct its secret or token",
    403: "correct its secret or token, or let this host in",
    404: "correct its url",
    410: "correct its url",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A receiver's answer, with any status."""

    status: int
    body: bytes
    #: Pause that the receiver asks for. None: the receiver asks for none.
    retry_after_seconds: float | None = None

    @property
    def may_pass(self) -> bool:
        """True if another try may succeed."""
        return self.status >= 500 or self.status in _PASSING


class HttpPost:
    """Posts to one receiver. Threads share this object, and each POST opens a connection of its own."""

    def __init__(
        self,
        *,
        name: str,
        step_seconds: float = STEP_SECONDS,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        """Reads the proxies from the environment once. `name`: the receiver's name in errors."""
        self._name = name
        self._proxies = getproxies_environment()
        self._step_seconds = step_seconds
        self._total_seconds = total_seconds
        self._clock = SystemClock()

    def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """Posts, and returns the answer of a receiver that accepted it (2xx). Raises ChannelAway and ChannelRefused."""
        answer = self.exchange(url, body, headers)
        self.require_taken(answer)
        return answer

    def ping(self, url: str) -> None:
        """Sends one GET, which every dead man's switch accepts. Raises ChannelAway and ChannelRefused."""
        self.require_taken(self.exchange(url, None, {"Cache-Control": "no-store"}, method="GET"))

    def exchange(self, url: str, body: bytes | None, headers: Mapping[str, str], *, method: str = "POST") -> HttpAnswer:
        """Returns the answer with any status, except for a redirect.

        Sends user and password of the URL as Authorization. Raises ChannelAway without an answer. Raises ChannelRefused
        for a redirect, an untrusted certificate, an address that is no http(s) URL, and a proxy that refuses.
        """
        parts = self._parts(url)
        deadline = Deadline(self._clock, self._total_seconds, step_seconds=self._step_seconds)
        try:
            return self._answer(parts, _request(parts, method, body, headers), deadline)
        except ssl.SSLCertVerificationError as error:
            found = f"{self._name}: its certificate is not trusted: {certificate_problem(error)}"
            # "from None", because the words of the cause name the host
            raise ChannelRefused(found, remedy="give its authority in SSL_CERT_FILE, or correct its url") from None
        except TimeoutError as error:
            raise ChannelAway(f"{self._name}: no answer in time") from error
        except (http.client.InvalidURL, UnicodeError):
            raise ChannelRefused(f"{self._name}: its url cannot be asked for", remedy="correct its url") from None
        except (OSError, http.client.HTTPException) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            raise ChannelAway(f"{self._name}: no answer: {why}") from error

    def require_taken(self, answer: HttpAnswer) -> None:
        """Raises ChannelAway or ChannelRefused if the status is not 2xx."""
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

    def _answer(self, parts: SplitResult, request: _Request, deadline: Deadline) -> HttpAnswer:
        host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
        proxy = proxy_of(parts, self._proxies, name=self._name)
        opened = open_connection(*((host, port) if proxy is None else (proxy.host, proxy.port)), deadline)
        try:
            if parts.scheme == "http":
                if proxy is not None:
                    request = request.by(proxy, parts)
            else:
                if proxy is not None:
                    self._tunnel(opened, proxy, (host, port), deadline)
                opened = encrypt(opened, ssl.create_default_context(), host, deadline)
            client = _client(opened, parts.scheme, (host, port), deadline)
            client.request(request.method, request.target, request.body, request.headers)
            response = client.getresponse()
            if response.status == PROXY_LOGIN_WANTED and proxy is not None:
                raise proxy.refusal(response.status, name=self._name)
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

    def _tunnel(self, opened: socket.socket, proxy: Proxy, receiver: tuple[str, int], deadline: Deadline) -> None:
        """Makes the proxy pass on all later bytes (RFC 9110, 9.3.6)."""
        host, port = receiver
        authority = address_of(host, port)
        client = _client(opened, "http", receiver, deadline)  # reads ahead, but no bytes come before TLS begins
        client.request("CONNECT", authority, headers={"Host": authority, **proxy.headers})
        response = client.getresponse()
        if not 200 <= response.status < 300:
            raise proxy.refusal(response.status, name=self._name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    target: str
    body: bytes | None
    headers: Mapping[str, str]

    def by(self, proxy: Proxy, parts: SplitResult) -> _Request:
        """Makes the request that a proxy needs for a receiver without TLS."""
        target = f"http://{parts.netloc.rpartition('@')[2]}{self.target}"
        return replace(self, target=target, headers={**self.headers, **proxy.headers})


def _request(parts: SplitResult, method: str, body: bytes | None, headers: Mapping[str, str]) -> _Request:
    login = basic_login(parts.username, parts.password)
    return _Request(
        method=method,
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        body=body,
        headers={
            "Connection": "close",
            "User-Agent": "checkback-reconciler",
            **({} if login is None else {"Authorization": login}),
            **headers,
        },
    )


def _client(
    opened: socket.socket, scheme: str, receiver: tuple[str, int], deadline: Deadline
) -> http.client.HTTPConnection:
    """Makes a client that speaks HTTP over an open connection and does not close the connection. `receiver`: host and
    port for the header Host."""
    client = http.client.HTTPConnection(*receiver)
    client.default_port = _PORTS[scheme]
    client.sock = cast("socket.socket", _TimedSocket(opened, deadline))
    return client


def _retry_after_seconds(headers: http.client.HTTPMessage) -> float | None:
    """Reads Retry-After: seconds, or a date, which is compared with the receiver's date (RFC 9110, 10.2.3)."""
    text = (headers.get("Retry-After") or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), RETRY_AFTER_SECONDS_MAX)
    asked, now = _moment(text), _moment(headers.get("Date") or "")
    if asked is None or now is None:
        return None
    with suppress(TypeError):  # one of the two dates has no zone
        return min(max(0.0, (asked - now).total_seconds()), RETRY_AFTER_SECONDS_MAX)
    return None


def _moment(text: str) -> datetime | None:
    with suppress(ValueError, TypeError, OverflowError):
        return parsedate_to_datetime(text)
    return None


class _TimedSocket:
    """The part of a socket that http.client uses, under the deadline of the POST."""

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._opened = opened
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        """Sends under the deadline. Raises TimeoutError."""
        self._opened.settimeout(self._deadline.next_wait_seconds())
        self._opened.sendall(data)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        """Makes the buffer from which one response is read."""
        return io.BufferedReader(ReceivedBytes(self._opened, self._deadline, bytes_max=_RECEIVED_BYTES_MAX))

    def close(self) -> None:
        """Leaves the socket open for its owner, because the response is read after http.client has closed this
        object."""
