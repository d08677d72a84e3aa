"""The socket on which the server listens.

When it accepts a connection above the limits, it closes the connection before reading a byte. Later it closes
connections that keep the server waiting.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

from reconciler.clock import Clock
from reconciler.settings.web import WebSettings
from reconciler.web.access.addresses import Networks, counted_address

logger = logging.getLogger(__name__)

#: Most connections at once. Together with its other sockets, a process stays below 1,024, which many systems allow.
CONNECTIONS_MAX = 512
#: Places of CONNECTIONS_MAX that are reserved for this machine and web.probe_addresses.
KEPT_FOR_PROBES = 16
#: Most connections of one address, or of one /64 network of IPv6. Proxies are exempt, because many people share a
#: proxy.
OF_AN_ADDRESS_MAX = 64
#: Longest time until the headers of a request have ended. It begins with the connection, before TLS, or with the first
#: byte of a further request.
REQUEST_SECONDS_MAX = 5.0
#: How long a client may take nothing of its answer before it is disconnected.
UNREAD_SECONDS_MAX = 10.0
#: Bytes on their way to a client. Linux doubles them.
UNREAD_BYTES_MAX = 128 << 10
#: Most refusals that the event loop makes before it does other work.
REFUSALS_AT_ONCE_MAX = 256
TELL_SECONDS = 60.0
THIS_MACHINE = ("127.0.0.1", "::1")


class BoundedListener(socket.socket):
    """A listening socket with limits. Once it listens, only the thread of the event loop uses it."""

    def __init__(self, bound: socket.socket, web: WebSettings, *, clock: Clock) -> None:
        """Takes the socket over."""
        super().__init__(bound.family, bound.type, bound.proto, fileno=bound.detach())
        self._clock = clock
        self._proxies = Networks(web.proxy_addresses)
        self._probes = Networks([*THIS_MACHINE, *web.probe_addresses])
        self._places: dict[int, AcceptedConnection] = {}
        self._taken: Counter[str] = Counter()
        self._told_at_seconds = -TELL_SECONDS
        # Accepted connections inherit these options. Without TCP_NODELAY, each answer on a kept connection waits 40 ms.
        # Headers and body are two writes, and the kernel holds the second one until the first is acknowledged.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD_BYTES_MAX)
        if sys.platform == "linux":  # other systems lack it: a client that reads nothing keeps its place
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(UNREAD_SECONDS_MAX * 1_000))

    def accept(self) -> tuple[AcceptedConnection, Any]:
        """Returns the next connection that gets a place. Raises BlockingIOError if there is none now."""
        for _ in range(REFUSALS_AT_ONCE_MAX):
            connection, address = super().accept()
            if self._has_room_for(address[0]):
                place = AcceptedConnection(self, connection, address[0])
                self._places[place.fileno()] = place
                self._taken[place.counted] += 1
                place.wait()
                return place, address
            connection.close()
            self._tell(address[0])
        raise BlockingIOError

    def place_of(self, connection: socket.socket) -> AcceptedConnection:
        """Returns the place of an accepted connection, by its descriptor."""
        return self._places[connection.fileno()]

    def give_back(self, place: AcceptedConnection) -> None:
        """Frees the place of a connection that is about to be closed."""
        if self._places.pop(place.fileno(), None) is not None:
            self._taken[place.counted] -= 1
            if not self._taken[place.counted]:
                del self._taken[place.counted]

    def _has_room_for(self, address: str) -> bool:
        is_proxy = self._proxies.has(address)
        is_probe = self._probes.has(address) and not is_proxy
        most = CONNECTIONS_MAX if is_probe else CONNECTIONS_MAX - KEPT_FOR_PROBES
        has_room = is_proxy or self._taken[counted_address(address)] < OF_AN_ADDRESS_MAX
        return has_room and len(self._places) < most

    def _tell(self, address: str) -> None:
        now = self._clock.monotonic_seconds()
        if now - self._told_at_seconds >= TELL_SECONDS:
            self._told_at_seconds = now
            logger.warning("web_connection_refused", extra={"address": address, "connections": len(self._places)})


class AcceptedConnection(socket.socket):
    """An accepted connection. It keeps its place until it is closed."""

    def __init__(self, listener: BoundedListener, connection: socket.socket, address: str) -> None:
        """Takes the socket over."""
        super().__init__(connection.family, connection.type, connection.proto, fileno=connection.detach())
        self.counted = counted_address(address)
        self._listener = listener
        self._patience: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """Begins the wait for a request, unless it has begun."""
        if self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, self._give_up)

    def end_wait(self) -> None:
        """Ends the wait, because the request has come."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def close(self) -> None:
        """Closes the socket and frees its place."""
        self.end_wait()
        self._listener.give_back(self)
        super().close()

    def _give_up(self) -> None:
        with suppress(OSError):  # the client has gone
            self.shutdown(socket.SHUT_RDWR)
