"""Addresses that a process listens on, as settings name them."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

from reconciler.contract.urls import read_address
from reconciler.errors import ConfigurationError


def host_and_port(address: str) -> tuple[str, int]:
    """The host without the brackets of IPv6; port 0 where none is named. Raises ValueError."""
    host, port = read_address(address)
    return host.strip("[]"), port or 0


def is_own_name(asked: str) -> bool:
    """Whether a Host header names this machine or an address: under neither does a stranger's name lead here by DNS."""
    with suppress(ValueError):
        host = host_and_port(asked)[0].lower()
        if host in ("localhost", socket.gethostname().lower()):
            return True
        ipaddress.ip_address(host)
        return True
    return False


def address_refused(setting: str, listen: str, error: Exception) -> ConfigurationError:
    """The address cannot be had. `setting`: its name, such as web.listen."""
    variable = f"RECONCILER_{setting.replace('.', '__').upper()}"
    return ConfigurationError(
        f"{setting} = {listen!r}: {error}; if another process of the same file has it, give each its own by {variable}"
    )
