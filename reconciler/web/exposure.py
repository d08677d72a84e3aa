"""Where pages may be served, and under which names they are asked for."""

from __future__ import annotations

import ipaddress
from http import HTTPStatus

from reconciler.errors import ConfigurationError
from reconciler.instrumentation.listening import host_and_port
from reconciler.web.exchange import WebRefusal, WebRequest


def require_loopback(listen: str) -> None:
    """Nobody proves who they are, so only this machine may ask. Raises ConfigurationError for another address."""
    if not _is_loopback(listen):
        raise ConfigurationError(
            f"web.listen = {listen!r}: everybody who reaches this address could look; listen on 127.0.0.1, and let a "
            "proxy in front of it ask who they are"
        )


def require_own_name(request: WebRequest) -> None:
    """Raises WebRefusal: a page of another site asks, whose name leads here by DNS."""
    asked = request.headers.get("host", "")
    try:
        is_own = _is_loopback(asked)
    except ValueError:
        is_own = False
    if not is_own:
        raise WebRefusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"served as localhost, 127.0.0.1 and [::1] only, and not as {asked[:100]!r}",
            kind="other-name",
        )


def _is_loopback(address: str) -> bool:
    """Raises ValueError for what is no address."""
    host, _ = host_and_port(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
