"""Addresses in settings and routes, such as "host:port", "[v6]:port" and the list "a;b"."""

from __future__ import annotations

from functools import lru_cache

from reconciler.errors import InvalidValue

_REMEDY = "host:port or [IPv6 address]:port"


@lru_cache(maxsize=4096)
def parse_address(address: str) -> tuple[str, int]:
    """Parses an address into host and port. Raises InvalidValue for any other text."""
    host, separator, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidValue("address", address, _REMEDY)
    if not separator or not host or not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise InvalidValue("address", address, _REMEDY)
    if not 0 < int(port) <= 65_535:
        raise InvalidValue("address", address, _REMEDY)
    return host, int(port)


def bracketed(address: str) -> str:
    """Puts brackets around an IPv6 host, because brokers may register without brackets. Raises InvalidValue for a text
    that is no address."""
    host, separator, port = address.rpartition(":")
    if separator and ":" in host and not host.startswith("["):
        address = f"[{host}]:{port}"
    parse_address(address)
    return address


def parse_addresses(addresses: str) -> tuple[str, ...]:
    """Parses a list "a;b" (Java's namesrvAddr). Raises InvalidValue for an empty list or a bad address."""
    if not isinstance(addresses, str):
        raise InvalidValue("name_servers", addresses, f'a str, not {type(addresses).__name__}: "host:port;host:port"')
    found = tuple(part.strip() for part in addresses.split(";") if part.strip())
    if not found:
        raise InvalidValue("name servers", addresses, 'at least one address: "host:port;host:port"')
    for address in found:
        parse_address(address)
    return found
