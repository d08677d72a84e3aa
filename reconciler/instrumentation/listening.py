"""Addresses on which a process listens, as settings name them."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

from reconciler.contract.urls import read_address
from reconciler.errors import ConfigurationError


def host_and_port(address: str) -> tuple[str, int]:
    """Splits an address into host and port. The host loses the brackets of IPv6. Port 0: the address names no port.
    Raises ValueError for an invalid address."""
    host, port = read_address(address)
    return host.strip("[]"), port or 0


def is_own_name(asked: str) -> bool:
    """Returns True if a Host header names this machine or an IP address. A stranger's DNS can claim neither."""
    with suppress(ValueError):
        host = host_and_port(asked)[0].lower()
        if host in ("localhost", socket.gethostname().lower()):
            return True
        ipaddress.ip_address(host)
        return True
    return False


def address_refused(setting: str, listen: str, error: Exception) -> ConfigurationError:
    """Makes the error for an address that cannot be had. `setting`: such as web.listen."""
    variable = f"RECONCILER_{setting.replace('.', '__').upper()}"
    return ConfigurationError(
        f"{setting} = {listen!r}: {error}; if another process of the same file has it, give each its own by {variable}"
    )
