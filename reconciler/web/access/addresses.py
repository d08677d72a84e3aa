"""Addresses of clients and of our proxies."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from reconciler.web.exchange import WebRequest

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Size of the network that a provider gives one customer.
IPV6_CUSTOMER_BITS = 64


class Networks:
    """Addresses and networks from the settings."""

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(one) for one in networks]

    def has(self, address: str) -> bool:
        """Returns True if the address is one of them."""
        return self._has(_address(address))

    def _has(self, address: _Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


class TrustedProxies(Networks):
    """Networks of proxies whose headers are believed."""

    def sent(self, request: WebRequest) -> bool:
        """Returns True if the connection comes from one of these proxies."""
        return self.has(request.peer)

    def client_of(self, request: WebRequest) -> str:
        """Returns the client's address for counting: the nearest address in X-Forwarded-For that belongs to no proxy.

        Each proxy appends the address that it sees. An address that stands before the first proxy's entry may be
        invented.
        """
        found = _address(request.peer)
        hops = request.headers.get("x-forwarded-for", "").split(",")
        while self._has(found) and hops and (before := _address(hops.pop().strip())) is not None:
            found = before
        return _counted(found)


def counted_address(text: str) -> str:
    """Returns the address or network whose connections and attempts are counted together. Returns an empty text if
    `text` is no address."""
    return _counted(_address(text))


def _address(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _counted(address: _Address | None) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, IPV6_CUSTOMER_BITS), strict=False))
    return "" if address is None else str(address)
