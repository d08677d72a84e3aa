"""The address, names and scheme by which browsers reach the server. The module also checks whether they are safe."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from reconciler.errors import ConfigurationError
from reconciler.instrumentation.listening import host_and_port
from reconciler.settings.web import WebSettings
from reconciler.web.exchange import WebRefusal, WebRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How browsers reach the server."""

    #: The scheme of the requests that browsers send.
    scheme: Literal["http", "https"]
    #: Names of the server in lower case, besides the names of this machine.
    host_names: frozenset[str]
    #: True: browsers reach only the proxies.
    is_for_proxies_only: bool

    def require_own_name(self, request: WebRequest) -> None:
        """Raises WebRefusal for a request under a foreign name. A page of another site can lead its own name here by
        DNS (DNS rebinding)."""
        asked = request.headers.get("host", "")
        try:
            host = host_and_port(asked)[0].lower()
            is_own = host in self.host_names or _is_loopback(host)
        except ValueError:
            is_own = False
        if not is_own:
            served = ", ".join(["localhost", "127.0.0.1", "[::1]", *sorted(self.host_names)])
            raise WebRefusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"served as {served} only, and not as {asked[:100]!r}; web.host_names has the names",
                kind="other-name",
            )


def exposure_of(web: WebSettings, listen: str) -> Exposure:
    """Makes the exposure. `listen`: host:port. Raises ConfigurationError if strangers could see the pages or read the
    traffic."""
    host = host_and_port(listen)[0].lower()
    if web.users_file is None and web.proxy_user_header is None and (web.behind_proxy or not _is_loopback(host)):
        raise ConfigurationError(
            f"web.listen = {listen!r}: everybody who reaches this address{' or its proxy' if web.behind_proxy else ''} "
            "could look; set web.users_file, or web.proxy_user_header of a proxy that asks who they are, or listen on "
            "127.0.0.1 without a proxy"
        )
    if not _is_loopback(host):
        _require_safe(web, listen, host)
    names = set(web.host_names) | ({host} if not _is_wildcard(host) else set())
    return Exposure(
        scheme="https" if web.tls_certificate is not None or web.behind_proxy else "http",
        host_names=frozenset(name.strip("[]") for name in names if not _is_loopback(name.strip("[]"))),
        is_for_proxies_only=web.behind_proxy,
    )


def _require_safe(web: WebSettings, listen: str, host: str) -> None:
    if web.tls_certificate is None and not web.behind_proxy:
        raise ConfigurationError(
            f"web.listen = {listen!r}: passwords and sessions would cross the network as plain text; set "
            "web.tls_certificate, or web.behind_proxy = true where a proxy ends TLS"
        )
    if _is_wildcard(host) and not web.host_names:
        raise ConfigurationError(
            f"web.listen = {listen!r} names no host: list the names by which browsers ask in web.host_names"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
