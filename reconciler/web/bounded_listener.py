"""The socket on which the server listens.

A connection above the limits takes the place of the one that has kept the server waiting longest. If the server waits
for none, the new connection is closed before a byte is read. Later the listener closes connections that keep the server
waiting.
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

#: Maximum number of connections at once. Together with its other sockets, a process stays below 1,024, which many
#: systems allow.
CONNECTIONS_MAX = 512
#: Places of CONNECTIONS_MAX that are reserved for this machine and web.probe_addresses.
KEPT_FOR_PROBES = 16
#: Maximum number of connections of one address, or of one /64 network of IPv6. Proxies are exempt, because many people
#: share a proxy.
OF_AN_ADDRESS_MAX = 64
#: Longest time until the headers of a request have ended. It begins with the connection, before TLS, or with the first
#: byte of a further request.
REQUEST_SECONDS_MAX = 5.0
#: How long a client may take nothing of its answer before it is disconnected.
UNREAD_SECONDS_MAX = 10.0
#: Bytes on their way to a client. Linux doubles them.
UNREAD_BYTES_MAX = 128 << 10
#: Maximum number of connections that have lost their place and are not closed yet.
LEAVING_MAX = 64
#: Maximum number of refusals that the event loop makes before it does other work.
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
        #: Connections that are not closed, by descriptor.
        self._open: dict[int, AcceptedConnection] = {}
        #: Connections that keep the server waiting. The one that has waited longest is first.
        self._waiting: dict[AcceptedConnection, None] = {}
        #: Places by address.
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
            if self._has_room_for(address[0]) or self._makes_room_for(address[0]):
                place = AcceptedConnection(self, connection, address[0], is_probe=self._is_probe(address[0]))
                self._open[place.fileno()] = place
                self._taken[place.counted] += 1
                place.wait()
                return place, address
            connection.close()
            if self._tells_now():
                logger.warning("web_connection_refused", extra=self._about(address[0]))
        raise BlockingIOError

    def place_of(self, connection: socket.socket) -> AcceptedConnection:
        """Returns the place of an accepted connection, by its descriptor."""
        return self._open[connection.fileno()]

    def note_wait(self, place: AcceptedConnection, *, is_waiting: bool) -> None:
        """Records whether the connection keeps the server waiting."""
        if not is_waiting:
            self._waiting.pop(place, None)
        elif place.has_place:
            self._waiting.setdefault(place)

    def give_back(self, place: AcceptedConnection) -> None:
        """Frees the place of a connection, unless it is free already."""
        self._waiting.pop(place, None)
        if place.has_place:
            place.has_place = False
            self._taken[place.counted] -= 1
            if not self._taken[place.counted]:
                del self._taken[place.counted]

    def forget(self, place: AcceptedConnection) -> None:
        """Forgets a connection that is about to be closed."""
        self.give_back(place)
        self._open.pop(place.fileno(), None)

    def _has_room_for(self, address: str) -> bool:
        most = CONNECTIONS_MAX if self._is_probe(address) else CONNECTIONS_MAX - KEPT_FOR_PROBES
        return not self._has_its_most(address) and self._taken.total() < most

    def _makes_room_for(self, address: str) -> bool:
        """Takes the place of a waiting connection. An address that has its most takes a place of its own.

        Others take no place of a probe.
        """
        if len(self._open) - self._taken.total() >= LEAVING_MAX:
            return False
        own = counted_address(address) if self._has_its_most(address) else None
        for place in self._waiting:
            if not place.is_probe if own is None else place.counted == own:
                if self._tells_now():
                    logger.warning("web_connection_displaced", extra=self._about(place.address))
                self.give_back(place)
                place.shut_down()
                return True
        return False

    def _has_its_most(self, address: str) -> bool:
        return not self._proxies.has(address) and self._taken[counted_address(address)] >= OF_AN_ADDRESS_MAX

    def _is_probe(self, address: str) -> bool:
        return self._probes.has(address) and not self._proxies.has(address)

    def _tells_now(self) -> bool:
        """True once per minute."""
        now = self._clock.monotonic_seconds()
        if now - self._told_at_seconds < TELL_SECONDS:
            return False
        self._told_at_seconds = now
        return True

    def _about(self, address: str) -> dict[str, object]:
        return {"address": address, "connections": self._taken.total()}


class AcceptedConnection(socket.socket):
    """An accepted connection. It keeps its place until it is closed, or until another connection takes the place."""

    def __init__(self, listener: BoundedListener, connection: socket.socket, address: str, *, is_probe: bool) -> None:
        """Takes the socket over."""
        super().__init__(connection.family, connection.type, connection.proto, fileno=connection.detach())
        self.address = address
        self.is_probe = is_probe
        self.counted = counted_address(address)
        self.has_place = True
        self._listener = listener
        self._patience: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """Begins the wait for a request, unless it has begun."""
        self._listener.note_wait(self, is_waiting=True)
        if self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, self.shut_down)

    def end_wait(self, *, is_waiting: bool = False) -> None:
        """Ends the wait for a request. `is_waiting`: the server waits for something else, which has its own limit."""
        self._listener.note_wait(self, is_waiting=is_waiting)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def close(self) -> None:
        """Closes the socket and frees its place."""
        self.end_wait()
        self._listener.forget(self)
        super().close()

    def shut_down(self) -> None:
        """Ends the connection. Whoever has the socket closes it then."""
        with suppress(OSError):  # the client has gone
            self.shutdown(socket.SHUT_RDWR)
