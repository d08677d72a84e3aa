"""Binds the two ports of a broker. The second port is the requested port minus 2, for the VIP channel of clients up to
4.4."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field

from reconciler.embedded.broker import Broker
from reconciler.embedded.channel import Channel
from reconciler.embedded.registration import Registration
from reconciler.embedded.tls import ServerTls, TlsDoor
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.rocketmq.client.tls_context import TlsContext

VIP_DISTANCE = 2  # BrokerController: fastListenPort = listenPort - 2
_TRIES = 64


def parse_address(text: str, *, field_name: str = "listen") -> tuple[str, int]:
    """Parses "127.0.0.1:9876" or "[::1]:9876" into host and port. Raises InvalidValue."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise InvalidValue(field_name, text, "HOST:PORT, for example 127.0.0.1:9876")
    return host, int(port)


def bind_ports(host: str, port: int, *, with_vip: bool) -> list[socket.socket]:
    """Opens the listening sockets. For port 0, finds a free port whose VIP port is also free.

    Raises ConfigurationError if the ports cannot be bound.
    """
    if with_vip and 0 < port <= VIP_DISTANCE:
        raise InvalidValue("listen", port, "a port above 2, because the port two below is bound too")
    last: OSError | None = None
    for _ in range(_TRIES if port == 0 else 1):
        first = None
        try:
            first = _bind(host, port)
            if not with_vip:
                return [first]
            return [first, _bind(host, first.getsockname()[1] - VIP_DISTANCE)]
        except (OSError, OverflowError) as error:
            last = error if isinstance(error, OSError) else OSError(str(error))
            if first is not None:
                first.close()
    raise ConfigurationError(f"cannot listen on {host}:{port} and two below it: {last}") from last


def _bind(host: str, port: int) -> socket.socket:
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(kind, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    return listener


@dataclass(slots=True)
class Listening:
    """A broker that listens on its bound ports. Only one loop may use an object."""

    broker: Broker
    sockets: list[socket.socket]
    advertise: str | None = None
    name_servers: list[tuple[str, int]] = field(default_factory=list)
    name_server_tls: TlsContext | None = None
    tls: ServerTls | None = None
    _servers: list[asyncio.Server | TlsDoor] = field(default_factory=list)
    _registration: Registration | None = None

    async def start(self) -> None:
        """Begins to serve. Returns when the broker is ready, and registered if it has name servers."""
        host, port = self.sockets[0].getsockname()[:2]
        self.broker.start(self.advertise or host, port)
        loop = asyncio.get_running_loop()
        for listener in self.sockets:
            if self.tls is None:
                self._servers.append(await loop.create_server(self._channel, sock=listener))
            else:
                self._servers.append(TlsDoor(listener, self.tls, self._channel))
        if self.name_servers:
            self._registration = Registration(self.broker.services, self.name_servers, self.name_server_tls)
            await self._registration.start()

    def _channel(self) -> Channel:
        return Channel(self.broker.channels)

    async def stop(self) -> None:
        """Closes everything."""
        if self._registration is not None:
            await self._registration.stop()
        for server in self._servers:
            if isinstance(server, TlsDoor):
                await server.close()
            else:
                server.close()
        await self.broker.stop()
